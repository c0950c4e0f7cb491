package vfs

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// blockBytes is the unit of Stat_t.Blocks, whatever the file system.
	blockBytes = 512
	// longPath is after how many bytes of a path another walk begins.
	longPath = 512
)

// WrittenBytes returns what the files take that the action has made or changed, on
// the disk or, with Options.UpperMemory, in memory. It looks at each of them, without
// waiting for the action; what is removed meanwhile does not count. Not seen are
// files that have no name any more and, among hard links without overlayfs, those
// that have several.
func (r *Root) WrittenBytes() int64 {
	dir, linked := r.upper.scratch()
	return diskUsage(dir, func(nlink uint64) bool { return !linked || nlink == 1 })
}

// DiskUsage returns what the files and folders below dir take on the disk. What
// cannot be looked at, or goes meanwhile, does not count.
func DiskUsage(dir string) int64 {
	return diskUsage(dir, func(uint64) bool { return true })
}

// diskUsage sums up what the files below dir take whose number of links counts; of
// one with several each name counts for its part. How deep they lie makes no difference:
// the kernel takes only so much of a path at once, and a command can go deeper.
func diskUsage(dir string, counts func(nlink uint64) bool) (n int64) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone meanwhile
		}
		if d.IsDir() && len(path) > len(dir)+longPath {
			n += diskUsageFrom(path, counts)
			return fs.SkipDir
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok && (d.IsDir() || counts(uint64(st.Nlink))) {
			links := int64(1)
			if !d.IsDir() {
				links = max(1, int64(st.Nlink))
			}
			n += st.Blocks * blockBytes / links
		}
		return nil
	})
	return n
}

// diskUsageFrom is diskUsage of a folder that has a short path while it is open.
func diskUsageFrom(dir string, counts func(nlink uint64) bool) int64 {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0 // gone meanwhile
	}
	defer func() { _ = unix.Close(fd) }()
	return diskUsage(fmt.Sprintf("/proc/self/fd/%d/.", fd), counts)
}
