package folder

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// LeadsTo reports whether the entry of the open folder dir with that name is a symlink to target.
func LeadsTo(dir int, name, target string) bool {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(dir, name, buf)
	return err == nil && string(buf[:n]) == target
}

// FileOfOneName returns a path, valid as long as the folder dir is open, of its regular file with that
// name; false: there is none, or it has other names, too.
func FileOfOneName(dir int, name string) (string, bool) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1 {
		return "", false
	}
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir, name), true
}
