package folder

import (
	"context"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// A file is one of a file system.
type file struct{ major, minor, inode uint64 }

// Nameless returns the bytes on disks of files without a name that the processes pids have open or
// mapped. Each file counts once. Nameless stops when it has seen more than most, and when ctx ends.
// It does not count files in memory, or files that are closed meanwhile.
func Nameless(ctx context.Context, pids []int, most int64) int64 {
	l := nameless{ctx: ctx, most: most, seen: map[file]bool{}}
	for _, pid := range pids {
		process := filepath.Join("/proc", strconv.Itoa(pid))
		l.countAll(filepath.Join(process, "map_files"))
		for thread := range Tables(pid) {
			l.countAll(filepath.Join(process, "task", strconv.Itoa(thread), "fd"))
		}
	}
	return l.sum
}

// nameless adds up files without names.
type nameless struct {
	ctx  context.Context // of one call of Nameless
	most int64
	sum  int64
	seen map[file]bool
}

// countAll counts the files of a folder in /proc, until there is no more to do.
func (l *nameless) countAll(dir string) {
	for path := range Names(dir) {
		if l.sum > l.most || l.ctx.Err() != nil {
			return
		}
		l.count(path)
	}
}

// count adds the file at path, if it has no name and was not seen. It asks no server of a network.
func (l *nameless) count(path string) {
	var st unix.Statx_t
	const flags, mask = unix.AT_STATX_DONT_SYNC | unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BLOCKS
	if unix.Statx(unix.AT_FDCWD, path, flags, mask, &st) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Blocks == 0 {
		return
	}
	f := file{uint64(st.Dev_major), uint64(st.Dev_minor), st.Ino}
	var on unix.Statfs_t
	if l.seen[f] || unix.Statfs(path, &on) != nil || on.Type == unix.TMPFS_MAGIC || on.Type == unix.HUGETLBFS_MAGIC {
		return
	}
	l.seen[f] = true
	l.sum += int64(st.Blocks) * statBytes
}
