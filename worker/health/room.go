package health

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// A disk is full from where less of it is free than one part in reserveShare, or than mostReserve.
	reserveShare, mostReserve = 64, 256 << 20
	// leastFiles is how many files it has to have room for.
	leastFiles = 1000
)

// errReadOnly says that nothing can be written, as when the kernel has found a disk damaged.
var errReadOnly = errors.New("the disk is read-only")

// space is what a disk has room for.
type space struct {
	free, lack int64 // bytes that may be written, and that would have to be free besides; no lack: there is room
	readOnly   bool
	// scarce: there is less than half of what has to be free, so that writes may have failed before anybody looked.
	scarce bool
	lasts  time.Duration // how soon it could be used up
}

func measure(dir string) (space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return space{}, fmt.Errorf("statfs %s: %w", dir, err)
	}
	free, files := int64(st.Bavail)*st.Bsize, int64(st.Ffree)
	reserve := min(int64(st.Blocks)*st.Bsize/reserveShare, mostReserve)
	now := space{free: free, lack: max(0, reserve-free), scarce: free < reserve/2, lasts: Lasts(free, files)}
	if st.Flags&unix.ST_RDONLY != 0 {
		return space{lack: reserve, readOnly: true, scarce: true, lasts: Lasts(unbounded, unbounded)}, nil
	}
	if st.Files == 0 { // it does not count them
		now.lasts = Lasts(free, unbounded)
		return now, nil
	}
	least := min(int64(st.Files)/reserveShare, leastFiles)
	now.scarce = now.scarce || files < least/2
	if files < least {
		now.lack = reserve
	}
	return now, nil
}

// shortage returns what is wrong with the room of dir; nil: nothing is.
func (s space) shortage(dir string) error {
	switch {
	case s.readOnly:
		return fmt.Errorf("%s: %w", dir, errReadOnly)
	case s.lack > 0:
		return fmt.Errorf("%s: the disk is full: %d more bytes have to be free", dir, s.lack)
	}
	return nil
}
