package folder

import (
	"math"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/eintr"
)

const (
	// statBytes is the unit of Stat_t.Blocks, on any file system.
	statBytes = 512
	// EntryBytes is the minimum for each name, because an empty file has an inode, too.
	EntryBytes = 4096
	// longPath is the length of a path in bytes after which another walk begins, with a separate
	// descriptor, and mostWalks limits the walks: deeper trees count as too much.
	longPath  = 512
	mostWalks = 256
)

// Usage returns the disk usage of the files and folders below dir, each at least 4 KiB. It stops
// above most. It skips files that are inaccessible or removed during the call.
func Usage(dir string, most int64) int64 {
	return UsageOf(dir, most, func(uint64) bool { return true })
}

// UsageOf is Usage of the files below dir with a counted number of links, and of all folders; a
// file with several links counts in part for each name.
func UsageOf(dir string, most int64, counts func(nlink uint64) bool) int64 {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = unix.Close(fd) }()
	u := adder{most: most, counts: counts}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		u.add(&st)
	}
	u.folder(fd, ".", 0)
	return u.sum
}

// OnDisk returns how many bytes of the disk a file or folder takes, at least EntryBytes.
func OnDisk(st *unix.Stat_t) int64 { return max(EntryBytes, st.Blocks*statBytes) }

// An adder has the sum so far.
type adder struct {
	most, sum int64
	counts    func(nlink uint64) bool
}

func (u *adder) add(st *unix.Stat_t) {
	n := OnDisk(st)
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		u.sum += n
	case u.counts(uint64(st.Nlink)):
		u.sum += n / max(1, int64(st.Nlink))
	}
}

// folder adds everything below path in the folder base, after so many other walks. It does not keep
// the names of a large folder in memory, it keeps no folder open while it is below it, and it does
// not follow a symlink that has replaced a folder.
func (u *adder) folder(base int, path string, walks int) {
	if walks > mostWalks {
		u.sum, u.most = math.MaxInt64/2, 0
		return
	}
	folders := u.list(base, path)
	for _, name := range folders {
		if u.sum > u.most {
			return
		}
		below := path + "/" + name
		if len(below) <= longPath {
			u.folder(base, below, walks)
			continue
		}
		if fd, err := OpenBelow(base, below, unix.O_PATH); err == nil {
			u.folder(fd, ".", walks+1)
			_ = unix.Close(fd)
		}
	}
}

// list adds the contents of a folder, and returns the folders in it.
func (u *adder) list(base int, path string) (folders []string) {
	fd, err := OpenBelow(base, path, unix.O_RDONLY)
	if err != nil {
		return nil // removed in the meantime
	}
	defer func() { _ = unix.Close(fd) }()
	_ = List(fd, func(name string) (more bool) {
		var st unix.Stat_t
		if u.sum > u.most {
			return false
		}
		if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return true
		}
		u.add(&st)
		if st.Mode&unix.S_IFMT == unix.S_IFDIR {
			folders = append(folders, name)
		}
		return true
	})
	return folders
}

// OpenBelow opens a folder below another, to which no symlink leads.
func OpenBelow(base int, path string, flags uint64) (int, error) {
	return eintr.Ignore(func() (int, error) {
		return unix.Openat2(base, path, &unix.OpenHow{
			Flags:   flags | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
		})
	})
}
