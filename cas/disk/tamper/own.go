package tamper

import (
	"os"

	"golang.org/x/sys/unix"
)

// An Own file is being written, and no other process has it open. A lease ensures that, if the file
// system supports leases. A process that opens the file, even as root, waits or gets an error, and
// breaks the lease.
type Own struct {
	*os.File
	lease Lease
	alone bool // no other process had it open when the lease was taken
}

// NewOwn takes over a newly created file.
func NewOwn(file *os.File) *Own {
	lease, alone := writeLeaseOf(file)
	return &Own{file, lease, alone}
}

// A Seal is the state of a file after its last byte.
type Seal struct {
	alone bool // no other process had it open
	mark  uint64
	dev   uint64
	inode uint64
	size  int64
	mtime unix.Timespec
	held  *Lease // of a file that stays open
}

// Seal ends the writing and closes the file: from now on others may open it. A change is then a
// violation.
func (o *Own) Seal() (Seal, error) {
	s := o.seal()
	return s, o.Close()
}

// Hold ends the writing of a file that stays open. Others may open it once Free is called.
func (o *Own) Hold() Seal {
	s := o.seal()
	s.held = &o.lease
	return s
}

// Free lets others open the file.
func (o *Own) Free() { o.lease.Release() }

func (o *Own) seal() Seal {
	var st unix.Stat_t
	alone := unix.Fstat(int(o.Fd()), &st) == nil && o.alone && o.lease.Holds()
	return Seal{alone: alone, mark: Mark(&st), dev: st.Dev, inode: st.Ino, size: st.Size, mtime: st.Mtim}
}

// Watch watches the file at path from before Whole until after its move. still reports whether no
// process could write to it.
func (s *Seal) Watch(path string) (still func() bool) {
	switch {
	case s == nil:
		return func() bool { return true }
	case s.held != nil:
		return s.held.Holds
	}
	return Unwritten(path)
}

// Whole reports whether no other process has written to the file at path since its creation, and
// only Seal's caller has changed it since. Call it before the file is moved, because a move is a
// change.
func (s *Seal) Whole(path string) bool {
	if s == nil {
		return true
	}
	m, err := MarkOf(path)
	return err == nil && s.alone && m == s.mark
}

// Moved reports whether the moved file, with these attributes, is the sealed one, and no process
// has written to it meanwhile: others may have replaced it before the move.
func (s *Seal) Moved(st *unix.Stat_t) bool {
	return s == nil || st.Dev == s.dev && st.Ino == s.inode && st.Size == s.size && st.Mtim == s.mtime
}
