package disk

import (
	"os"

	"golang.org/x/sys/unix"
)

// An own file is one that is being written, and that nobody else has open: it has a lease as long as that is so, where the
// file system has leases. Whoever opens it, root too, waits or is refused, and breaks the lease.
type own struct {
	*os.File
	lease lease
}

// newOwn takes over a file that was just made.
func newOwn(file *os.File) *own { return &own{file, writeLeaseOf(file)} }

// A seal is what a file was when the last byte was written.
type seal struct {
	alone bool // nobody else had it open
	mark  uint64
	size  int64
	mtime unix.Timespec
}

// seal ends the writing: from now on others may open the file. Only those change it who should not.
func (o *own) seal() seal {
	var st unix.Stat_t
	alone := unix.Fstat(int(o.Fd()), &st) == nil && o.lease.holds()
	o.lease.release()
	return seal{alone, mark(&st), st.Size, st.Mtim}
}

// whole reports whether nobody has written to the file at path since it was made, and nobody but seal's caller has changed it
// since. It is to be asked before the file is moved, which is a change.
func (s *seal) whole(path string) bool {
	if s == nil {
		return true
	}
	m, err := markOf(path)
	return err == nil && s.alone && m == s.mark
}

// moved reports whether nobody has written to the file while it was moved and got these attributes.
func (s *seal) moved(st *unix.Stat_t) bool {
	return s == nil || st.Size == s.size && st.Mtim == s.mtime
}
