package folder

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// A file is one of a file system.
type file struct{ major, minor, inode uint64 }

// Nameless returns what files take on disks that have no name any more, and that the processes pids
// have open or mapped, each once. When it has seen more than most it looks no further. Files in
// memory do not count, nor what ends meanwhile.
func Nameless(pids []int, most int64) (sum int64) {
	seen := map[file]bool{}
	for _, pid := range pids {
		process := fmt.Sprintf("/proc/%d", pid)
		open, err := os.ReadDir(process + "/fd")
		if err != nil {
			continue
		}
		paths := mappedNameless(process)
		for _, fd := range open {
			paths = append(paths, filepath.Join(process, "fd", fd.Name()))
		}
		for _, path := range paths {
			if sum += nameless(path, seen); sum > most {
				return sum
			}
		}
	}
	return sum
}

// mappedNameless returns paths of files without names that a process has mapped.
func mappedNameless(process string) (paths []string) {
	text, err := os.ReadFile(process + "/maps")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasSuffix(line, " (deleted)\n") {
			span, _, _ := strings.Cut(line, " ")
			paths = append(paths, filepath.Join(process, "map_files", strings.TrimLeft(span, "0")))
		}
	}
	return paths
}

// nameless returns what the file at path takes, if it has no name and was not seen. It asks no
// server of a network.
func nameless(path string, seen map[file]bool) int64 {
	var st unix.Statx_t
	const flags, mask = unix.AT_STATX_DONT_SYNC | unix.AT_NO_AUTOMOUNT, unix.STATX_TYPE | unix.STATX_NLINK | unix.STATX_INO | unix.STATX_BLOCKS
	if unix.Statx(unix.AT_FDCWD, path, flags, mask, &st) != nil || st.Nlink > 0 || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Blocks == 0 {
		return 0
	}
	f := file{uint64(st.Dev_major), uint64(st.Dev_minor), st.Ino}
	var on unix.Statfs_t
	if seen[f] || unix.Statfs(path, &on) != nil || on.Type == unix.TMPFS_MAGIC || on.Type == unix.HUGETLBFS_MAGIC {
		return 0
	}
	seen[f] = true
	return int64(st.Blocks) * statBytes
}
