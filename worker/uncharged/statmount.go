package uncharged

import (
	"bytes"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These are what statmount(2) tells (linux/mount.h).
const (
	askFileSystem = 1 << 0 // STATMOUNT_SB_BASIC
	askOptions    = 1 << 7 // STATMOUNT_MNT_OPTS: of the file system
)

// A statmount is the kernel's.
type statmount struct {
	_            uint32
	options      uint32 // where they begin in text
	_            uint64
	major, minor uint32
	magic        uint64
	_            [480]byte
	text         [2 * 4096]byte // mount(2) takes options of one page
}

// ask asks about a mount in a namespace.
func (m *statmount) ask(namespace, mount, what uint64) error {
	request := mountRequest{of: mount, after: what, namespace: namespace}
	request.size = uint32(unsafe.Sizeof(request))
	_, _, errno := unix.Syscall6(unix.SYS_STATMOUNT, uintptr(unsafe.Pointer(&request)),
		uintptr(unsafe.Pointer(m)), unsafe.Sizeof(*m), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// layers is how many lower layers an overlay has, after its options were asked for.
func (m *statmount) layers() int {
	text, _, _ := bytes.Cut(m.text[min(int(m.options), len(m.text)):], []byte{0})
	return bytes.Count(text, []byte(":")) + bytes.Count(text, []byte("lowerdir"))
}
