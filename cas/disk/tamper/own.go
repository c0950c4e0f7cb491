package tamper

import (
	"os"

	"golang.org/x/sys/unix"
)

// An Own file is one that is being written, and that nobody else has open: it has a lease as long as that is so, where the
// file system has leases. Whoever opens it, root too, waits or is refused, and breaks the lease.
type Own struct {
	*os.File
	lease Lease
}

// NewOwn takes over a file that was just made.
func NewOwn(file *os.File) *Own { return &Own{file, writeLeaseOf(file)} }

// A Seal is what a file was when the last byte was written.
type Seal struct {
	alone bool // nobody else had it open
	mark  uint64
	size  int64
	mtime unix.Timespec
}

// Seal ends the writing: from now on others may open the file. Only those change it who should not.
func (o *Own) Seal() Seal {
	var st unix.Stat_t
	alone := unix.Fstat(int(o.Fd()), &st) == nil && o.lease.Holds()
	o.lease.Release()
	return Seal{alone, Mark(&st), st.Size, st.Mtim}
}

// Whole reports whether nobody has written to the file at path since it was made, and nobody but Seal's caller has changed it
// since. It is to be asked before the file is moved, which is a change.
func (s *Seal) Whole(path string) bool {
	if s == nil {
		return true
	}
	m, err := MarkOf(path)
	return err == nil && s.alone && m == s.mark
}

// Moved reports whether nobody has written to the file while it was moved and got these attributes.
func (s *Seal) Moved(st *unix.Stat_t) bool {
	return s == nil || st.Size == s.size && st.Mtim == s.mtime
}
