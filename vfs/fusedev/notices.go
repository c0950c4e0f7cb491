package fusedev

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"unsafe"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// DropPages makes the kernel forget the content of a node. It waits for pages that are being read.
func (c *Conn) DropPages(node uint64) error {
	return c.notify(fuse.NOTIFY_INVAL_INODE, fuse.NotifyInvalInodeOut{Ino: node})
}

// DropEntry makes the kernel forget the entry of that name in the folder parent.
func (c *Conn) DropEntry(parent uint64, name string) error {
	return c.notify(fuse.NOTIFY_INVAL_ENTRY, fuse.NotifyInvalEntryOut{Parent: parent, NameLen: uint32(len(name))}, []byte(name), []byte{0})
}

// StorePages gives the kernel content of a node before it asks for it.
func (c *Conn) StorePages(node uint64, at int64, content []byte) error {
	return c.notify(fuse.NOTIFY_STORE_CACHE, fuse.NotifyStoreOut{Nodeid: node, Offset: uint64(at), Size: uint32(len(content))}, content)
}

// notify sends a notice, which nobody has asked for.
func (c *Conn) notify(kind int32, notice any, parts ...[]byte) error {
	var b bytes.Buffer
	size := int(unsafe.Sizeof(fuse.OutHeader{})) + binary.Size(notice)
	for _, p := range parts {
		size += len(p)
	}
	head := fuse.OutHeader{Length: uint32(size), Status: -kind}
	for _, v := range []any{head, notice} {
		if err := binary.Write(&b, binary.NativeEndian, v); err != nil {
			return err // of a type without a fixed size
		}
	}
	if err := c.write(append([][]byte{b.Bytes()}, parts...)...); err != nil {
		return fmt.Errorf("notify the kernel: %w", err)
	}
	return nil
}

// The requests to the device for files that the kernel reads by itself.
const (
	openBacking  = 0x4010e501 // FUSE_DEV_IOC_BACKING_OPEN
	closeBacking = 0x4004e502 // FUSE_DEV_IOC_BACKING_CLOSE
)

// Register lets the kernel read a file by itself, until Unregister.
func (c *Conn) Register(file *os.File) (id int32, err error) {
	backing := fuse.BackingMap{Fd: int32(file.Fd())}
	n, err := c.control(openBacking, unsafe.Pointer(&backing))
	return int32(n), err
}

// Unregister reverses Register.
func (c *Conn) Unregister(id int32) { _, _ = c.control(closeBacking, unsafe.Pointer(&id)) }

func (c *Conn) control(request uintptr, argument unsafe.Pointer) (result uintptr, err error) {
	failed := c.raw.Control(func(fd uintptr) {
		var errno unix.Errno
		if result, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(argument)); errno != 0 {
			err = errno
		}
	})
	if failed != nil {
		return 0, failed
	}
	return result, err
}
