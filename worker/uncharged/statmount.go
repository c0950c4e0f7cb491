package uncharged

import (
	"bytes"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These are what statmount(2) tells (linux/mount.h).
const (
	askFileSystem = 1 << 0 // STATMOUNT_SB_BASIC
	askRoot       = 1 << 3 // STATMOUNT_MNT_ROOT
)

// A statmount is the kernel's, with little room for text.
type statmount struct {
	_            [16]byte
	major, minor uint32
	magic        uint64
	_            [72]byte
	root         uint32 // where it begins in text
	_            [404]byte
	text         [128]byte
}

// ask asks about a mount.
func (m *statmount) ask(at mount, what uint64) error {
	request := mountRequest{of: at.id, after: what, namespace: at.namespace}
	request.size = uint32(unsafe.Sizeof(request))
	_, _, errno := unix.Syscall6(unix.SYS_STATMOUNT, uintptr(unsafe.Pointer(&request)),
		uintptr(unsafe.Pointer(m)), unsafe.Sizeof(*m), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// rootText is what is mounted, after that was asked for.
func (m *statmount) rootText() []byte {
	text, _, _ := bytes.Cut(m.text[min(int(m.root), len(m.text)):], []byte{0})
	return text
}
