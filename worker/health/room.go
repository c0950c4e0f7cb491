package health

import (
	"errors"
	"fmt"

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
}

func measure(dir string) (space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return space{}, fmt.Errorf("statfs %s: %w", dir, err)
	}
	free := int64(st.Bavail) * st.Bsize
	reserve := min(int64(st.Blocks)*st.Bsize/reserveShare, mostReserve)
	switch {
	case st.Flags&unix.ST_RDONLY != 0:
		return space{lack: reserve, readOnly: true}, nil
	case st.Files > 0 && st.Ffree < min(st.Files/reserveShare, leastFiles):
		return space{free: free, lack: reserve}, nil
	}
	return space{free: free, lack: max(0, reserve-free)}, nil
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
