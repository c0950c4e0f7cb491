package folder

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// statBytes is the unit of Stat_t.Blocks, whatever the file system.
	statBytes = 512
	// entryBytes is what each name takes at least, for an empty file has an inode, too.
	entryBytes = 4096
	// longPath is after how many bytes of a path another walk begins, with a descriptor of its own, and
	// mostWalks how many there may be: what is nested deeper is too much by itself.
	longPath  = 512
	mostWalks = 256
	// namesAtOnce is how many names of a folder are held at a time.
	namesAtOnce = 1024
)

// Usage returns what the files and folders below dir take on the disk, each at least
// 4 KiB. When it has seen more than most it looks no further. What cannot be looked at, or goes
// meanwhile, does not count.
func Usage(dir string, most int64) int64 {
	return UsageOf(dir, most, func(uint64) bool { return true })
}

// UsageOf is Usage of the files below dir whose number of links counts, and of all folders; of
// one with several each name counts for its part.
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

// An adder has the sum so far.
type adder struct {
	most, sum int64
	counts    func(nlink uint64) bool
}

func (u *adder) add(st *unix.Stat_t) {
	n := max(entryBytes, st.Blocks*statBytes)
	switch {
	case st.Mode&unix.S_IFMT == unix.S_IFDIR:
		u.sum += n
	case u.counts(uint64(st.Nlink)):
		u.sum += n / max(1, int64(st.Nlink))
	}
}

// folder adds what is below path in the folder base, after so many other walks. Neither the names in a large folder
// are held, nor is a folder open while the walk is below it, nor does it follow a symlink that
// was put in the place of a folder.
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
		if fd, err := openBelow(base, below, unix.O_PATH); err == nil {
			u.folder(fd, ".", walks+1)
			_ = unix.Close(fd)
		}
	}
}

// list adds what is in a folder, and returns the folders among it.
func (u *adder) list(base int, path string) (folders []string) {
	fd, err := openBelow(base, path, unix.O_RDONLY)
	if err != nil {
		return nil // gone meanwhile
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	for u.sum <= u.most {
		names, err := dir.Readdirnames(namesAtOnce)
		for _, name := range names {
			var st unix.Stat_t
			if unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			u.add(&st)
			if st.Mode&unix.S_IFMT == unix.S_IFDIR {
				folders = append(folders, name)
			}
		}
		if err != nil || len(names) == 0 {
			return folders
		}
	}
	return nil
}

// openBelow opens a folder below another, to which no symlink leads.
func openBelow(base int, path string, flags uint64) (int, error) {
	for {
		fd, err := unix.Openat2(base, path, &unix.OpenHow{
			Flags:   flags | unix.O_DIRECTORY | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
		})
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
