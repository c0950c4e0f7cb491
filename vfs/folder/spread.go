package folder

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// topFolder is EXT4_TOPDIR_FL: what is in such a folder has little to do with each other (chattr +T).
const topFolder = 0x20000

// Spread has ext4 without a journal put the folders that are made in dir, which is there, far from each other. Without
// one, ext4 takes no inode again for a minute to five, and looks at each that it passes by when it makes a file: it
// takes milliseconds where thousands were removed. Then what is removed from one folder costs the others nothing.
//
// With a journal ext4 does nothing of the kind, and has what lies close together in fewer blocks: there, and on other
// file systems, Spread does nothing.
func Spread(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	if !looksBack(fd) {
		return nil
	}
	flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS)
	if err == nil && flags&topFolder == 0 {
		err = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags|topFolder)
	}
	if err != nil {
		return &os.PathError{Op: "spread folders in", Path: dir, Err: err}
	}
	return nil
}

// looksBack reports whether an open folder is on ext4 without a journal. When in doubt it is not.
func looksBack(fd int) bool {
	var disk unix.Statfs_t
	var st unix.Stat_t
	if unix.Fstatfs(fd, &disk) != nil || disk.Type != unix.EXT4_SUPER_MAGIC || unix.Fstat(fd, &st) != nil {
		return false
	}
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return false
	}
	name := filepath.Base(device)
	if _, err := os.Stat(filepath.Join("/proc/fs/ext4", name)); err != nil {
		return false // nobody can tell here
	}
	journals, err := filepath.Glob(filepath.Join("/proc/fs/jbd2", name+"-*"))
	return err == nil && len(journals) == 0
}
