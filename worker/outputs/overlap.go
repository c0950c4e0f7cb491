package outputs

import (
	"path"

	"golang.org/x/sys/unix"
)

// entangled reports whether one output may be part of another, or have two paths: then a move for
// one would remove it from the other. This is so if one path leads to the other, or if one leads
// through a symlink. base is the root. In doubt they are entangled.
func entangled(base string, found []foundPath) bool {
	if len(found) < 2 {
		return false
	}
	dirs, paths := map[string]struct{}{}, make(map[string]struct{}, len(found))
	for _, at := range found {
		if _, again := paths[at.Full]; again {
			return true
		}
		paths[at.Full] = struct{}{}
		dirs[path.Dir(at.Full)] = struct{}{}
	}
	for dir := range dirs {
		for up := dir; ; up = path.Dir(up) {
			if _, is := paths[up]; is {
				return true
			}
			if up == "." {
				break
			}
		}
	}
	fd, err := unix.Open(base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return true
	}
	defer func() { _ = unix.Close(fd) }()
	for dir := range dirs {
		if dir != "." && !isStraight(fd, dir) {
			return true
		}
	}
	return false
}

// isStraight reports whether dir, below the folder fd, is a directory that no symlink leads to.
func isStraight(fd int, dir string) bool {
	at, err := unix.Openat2(fd, dir, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
	if err != nil {
		return false
	}
	return unix.Close(at) == nil
}
