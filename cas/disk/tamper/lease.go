package tamper

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// A Lease is a lease of a file (fcntl(2), F_SETLEASE). While it holds, a process that opens the
// file for writing waits or gets an error.
type Lease struct {
	fd   int
	kind int // F_RDLCK or F_WRLCK; a broken lease has another kind
}

// LeaseOf takes a lease of file, which is open for reading only. The kernel refuses it while
// anything else has the file open: a descriptor, a mapping, a queued request of a process that
// ended long ago. It also refuses it on some file systems, and for files of other users without
// CAP_LEASE.
func LeaseOf(file *os.File) (l Lease, ok bool) {
	l = Lease{int(file.Fd()), unix.F_RDLCK}
	// This kind is refused for descriptors to read, too: they can be opened again for writing.
	if _, err := unix.FcntlInt(uintptr(l.fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		return l, false
	}
	// With this kind, opens for reading no longer wait.
	if _, err := unix.FcntlInt(uintptr(l.fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		l.Release()
		return l, false
	}
	return l, true
}

// writeLeaseOf takes the lease of a new file; during it no other process can open the file at all.
// Without support for leases it always holds. alone is false if another process has the file open
// already.
func writeLeaseOf(file *os.File) (l Lease, alone bool) {
	l = Lease{int(file.Fd()), unix.F_WRLCK}
	if _, err := unix.FcntlInt(uintptr(l.fd), unix.F_SETLEASE, l.kind); err != nil {
		return Lease{fd: -1}, !errors.Is(err, unix.EAGAIN)
	}
	return l, true
}

// Unwritten watches for writes to the file at path. still, which is called once, reports whether
// there was none until then, as far as the file system supports leases.
func Unwritten(path string) (still func() bool) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return func() bool { return false }
	}
	watched := Watch(fd)
	return func() bool {
		defer func() { _ = unix.Close(fd) }()
		return watched.Still()
	}
}

// A Watched file delays or reveals every process that wants to write to it.
type Watched struct {
	lease Lease
	err   error
}

// Watch is Unwritten for a file that is open for reading only, until Still is called or it is
// closed.
func Watch(fd int) Watched {
	l := Lease{fd, unix.F_RDLCK}
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, l.kind)
	return Watched{l, err}
}

// Still ends the watch. It reports whether no process could write to the file, as far as the file
// system supports leases.
func (w Watched) Still() bool {
	if w.err != nil {
		return !errors.Is(w.err, unix.EAGAIN) // leases are unsupported, or another process has it open for writing
	}
	defer w.lease.Release()
	return w.lease.Holds()
}

// Holds reports whether the lease still protects the file: no process waits for it, and none has
// waited so long that the kernel broke the lease. Such a process gets SIGIO, which a Go program
// ignores.
func (l Lease) Holds() bool {
	if l.fd < 0 {
		return true
	}
	kind, err := unix.FcntlInt(uintptr(l.fd), unix.F_GETLEASE, 0)
	return err == nil && kind == l.kind
}

// Release ends the lease, as closing the file does.
func (l Lease) Release() {
	if l.fd >= 0 {
		_, _ = unix.FcntlInt(uintptr(l.fd), unix.F_SETLEASE, unix.F_UNLCK)
	}
}
