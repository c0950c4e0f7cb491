package tamper

import (
	"errors"
	"os"
	"time"

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

// longestMove is about how long the writer of a new file may keep its lease after the file has come to
// its place: it has two system calls to make. Who keeps a lease for longer must not delay others.
const longestMove = 200 * time.Millisecond

// OpenToRead opens a file by open, which gets the flags. It waits for nobody but the writer
// of a new file, who ends its lease soon after the file is in its place.
func OpenToRead[F any](open func(flags int) (F, error)) (F, error) {
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	wait, left := 20*time.Microsecond, longestMove
	for {
		file, err := open(flags)
		if !errors.Is(err, unix.EAGAIN) || left <= 0 {
			return file, err
		}
		time.Sleep(wait)
		left -= wait
		wait *= 2
	}
}

// A Seal is a file after its last byte, on its way to its place. It keeps its lease until it is
// there. Without a lease, it has the state of the file after that byte.
type Seal struct {
	own   *Own // open, and no other process can write to it; nil: its state shows whether one did
	stays bool // the file stays open

	alone bool // no other process had it open
	mark  uint64
	dev   uint64
	inode uint64
	size  int64
	mtime unix.Timespec
}

// Seal ends the writing of a file that Move closes. A file without a lease is closed at once.
func (o *Own) Seal() (Seal, error) {
	if o.leased() {
		return Seal{own: o}, nil
	}
	return o.state(false), o.Close()
}

// Hold ends the writing of a file that stays open.
func (o *Own) Hold() Seal {
	if o.leased() {
		return Seal{own: o, stays: true}
	}
	return o.state(true)
}

// SealOf is the Seal of an open file, of which the caller knows that no other process has written to
// it. The file stays open.
func SealOf(file *os.File) Seal {
	return Seal{own: &Own{File: file, lease: Lease{fd: -1}, alone: true}, stays: true}
}

// Free ends the lease: others may open the file.
func (o *Own) Free() {
	o.lease.Release()
	o.lease.fd = -1
}

func (o *Own) leased() bool { return o.lease.fd >= 0 }

func (o *Own) state(stays bool) Seal {
	var st unix.Stat_t
	alone := unix.Fstat(int(o.Fd()), &st) == nil && o.alone
	return Seal{stays: stays, alone: alone, mark: Mark(&st), dev: st.Dev, inode: st.Ino, size: st.Size, mtime: st.Mtim}
}

// Move calls move, which moves the file at from to its place and returns that, and lets others open
// the file. mark is the mark of the file after the move. whole reports whether no other process has
// written to it since its creation: a file that has this mark has the written bytes. If move fails,
// the file keeps its lease. If Move cannot close the file, it removes it. A file without a Seal, nil,
// is never whole.
func (s *Seal) Move(from string, move func() (to string, err error)) (mark uint64, whole bool, err error) {
	switch {
	case s == nil:
		_, err = move()
		return 0, false, err
	case s.own != nil:
		return s.own.move(move, s.stays)
	}
	still := func() bool { return true }
	if !s.stays {
		still = Unwritten(from)
	}
	unchanged := s.unchanged(from)
	to, err := move()
	if err != nil {
		still()
		return 0, false, err
	}
	st, err := StatOf(to)
	return Mark(&st), still() && unchanged && err == nil && s.moved(&st), nil
}

// move is Move of an open file that nobody else can write to. Its own mark is enough: others may
// have put another file in its place, but that has another mark.
func (o *Own) move(move func() (to string, err error), stays bool) (mark uint64, whole bool, err error) {
	to, err := move()
	if err != nil {
		return 0, false, err
	}
	mark, err = MarkOfOpen(o.Fd())
	whole = err == nil && o.lease.Holds()
	o.Free() // a child that is being forked may keep the file open, and with it the lease
	if stays {
		return mark, whole, nil
	}
	if err := o.Close(); err != nil {
		_ = os.Remove(to)
		return 0, false, err
	}
	return mark, whole, nil
}

// unchanged reports whether the file at path is the sealed one, and only its writer has changed it.
// Any move is a change.
func (s *Seal) unchanged(path string) bool {
	m, err := MarkOf(path)
	return err == nil && s.alone && m == s.mark
}

// moved reports whether the moved file, with these attributes, is the sealed one, and no process
// has written to it meanwhile: others may have replaced it before the move.
func (s *Seal) moved(st *unix.Stat_t) bool {
	return st.Dev == s.dev && st.Ino == s.inode && st.Size == s.size && st.Mtim == s.mtime
}
