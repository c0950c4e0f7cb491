package folder

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

// Usage returns what the files and folders below dir take on the disk. What
// cannot be looked at, or goes meanwhile, does not count.
func Usage(dir string) int64 {
	return UsageOf(dir, func(uint64) bool { return true })
}

// UsageOf sums up what the files below dir take whose number of links counts; of
// one with several each name counts for its part. How deep they lie makes no difference:
// the kernel takes only so much of a path at once, and a command can go deeper.
func UsageOf(dir string, counts func(nlink uint64) bool) (n int64) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // gone meanwhile
		}
		if d.IsDir() && len(path) > len(dir)+longPath {
			n += usageFrom(path, counts)
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

// usageFrom is UsageOf of a folder that has a short path while it is open.
func usageFrom(dir string, counts func(nlink uint64) bool) int64 {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0 // gone meanwhile
	}
	defer func() { _ = unix.Close(fd) }()
	return UsageOf(fmt.Sprintf("/proc/self/fd/%d/.", fd), counts)
}
