package health

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/worker/health/diskquota"
)

const (
	// A disk is full from where less of it is free than one part in reserveShare, or than
	// mostReserve.
	reserveShare, mostReserve = 64, 256 << 20
	// leastFiles is the number of files for which there must be room.
	leastFiles = 1000
)

// errReadOnly: the disk cannot be written, as when the kernel has found it damaged.
var errReadOnly = errors.New("the disk is read-only")

// space is the free space of a disk.
type space struct {
	free, lack int64 // free bytes, and bytes that are missing to the reserve; no lack: there is room
	readOnly   bool
	// scarce: less than half of the required space is free, so that writes may have failed before
	// the measurement.
	scarce bool
	lasts  time.Duration // how soon it could be used up
	of     string        // the quota that lacks room; empty: the disk itself
	// yields is how much of lack the worker can gain by removing its own files; late means that it
	// counts only when the file system has committed that.
	yields int64
	late   bool
}

func measure(dir string, quotas *diskquota.Quotas) (space, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return space{}, fmt.Errorf("statfs %s: %w", dir, err)
	}
	all := diskquota.Space{
		Free: int64(st.Bavail) * st.Bsize, MostBytes: int64(st.Blocks) * st.Bsize, Files: int64(st.Ffree), MostFiles: int64(st.Files),
	}
	if st.Files == 0 { // it does not count them
		all.Files, all.MostFiles = unbounded, unbounded
	}
	now := spaceOf(all)
	if st.Flags&unix.ST_RDONLY != 0 {
		return space{lack: reserve(all), readOnly: true, scarce: true, lasts: Lasts(unbounded, unbounded)}, nil
	}
	spaces, _ := quotas.Spaces() // unreadable quotas are reported at the start
	for _, s := range spaces {
		now = now.within(spaceOf(s))
	}
	return now, nil
}

// reserve is the number of bytes that must be free.
func reserve(r diskquota.Space) int64 {
	return max(min(r.MostBytes/reserveShare, mostReserve), r.AtOnce)
}

func spaceOf(r diskquota.Space) space {
	bytes, files := reserve(r), min(r.MostFiles/reserveShare, leastFiles)
	now := space{
		free: r.Free, lack: max(0, bytes-r.Free), scarce: r.Free < bytes/2 || r.Files < files/2, lasts: Lasts(r.Free, r.Files),
	}
	if r.Files < max(files, 1) {
		now.lack = bytes
	}
	if now.lack > 0 {
		now.of, now.late = r.Of, r.Late
		if !r.Foreign {
			now.yields = now.lack
		}
	}
	return now
}

// within returns the part of s that o has, too.
func (s space) within(o space) space {
	if o.lack > s.lack {
		s.lack, s.of = o.lack, o.of
	}
	s.free, s.lasts = min(s.free, o.free), min(s.lasts, o.lasts)
	s.yields, s.late, s.scarce = max(s.yields, o.yields), s.late || o.late, s.scarce || o.scarce
	return s
}

// shortage returns the lack of room of dir; nil: none.
func (s space) shortage(dir string) error {
	switch {
	case s.readOnly:
		return fmt.Errorf("%s: %w", dir, errReadOnly)
	case s.lack > 0 && s.of != "":
		return fmt.Errorf("%s: the %s is used up: %d more bytes must be free", dir, s.of, s.lack)
	case s.lack > 0:
		return fmt.Errorf("%s: the disk is full: %d more bytes must be free", dir, s.lack)
	}
	return nil
}
