package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Small entries of /etc are copied when the launcher starts, and the others are mounted. Each mount
// costs each command: its namespace gets a copy of it, which ends with it.
const (
	mostCopiedFiles = 64
	mostCopiedBytes = 128 << 10
)

// A copied is a file, a folder or a symlink to copy.
type copied struct {
	path string // on the machine
	info fs.FileInfo
}

// errMuch: mount the entry instead.
var errMuch = errors.New("not to be copied")

// little lists the entries at path in /etc, folders before their entries. It returns errMuch if
// they are large, or another mount, which its owner may change, or not all plain files of the user
// that copies, which could not set another owner.
func (v *view) little(path string) (all []copied, err error) {
	var bytes int64
	var etc unix.Stat_t
	if err := unix.Stat("/etc", &etc); err != nil {
		return nil, err
	}
	err = filepath.WalkDir(path, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		all = append(all, copied{path, info})
		bytes += info.Size()
		kind := info.Mode() &^ fs.ModePerm
		switch {
		case kind != 0 && kind != fs.ModeDir && kind != fs.ModeSymlink, stat.Dev != etc.Dev,
			int(stat.Uid) != os.Geteuid(), int(stat.Gid) != os.Getegid(),
			len(all) > mostCopiedFiles, bytes > mostCopiedBytes,
			slices.Contains(v.hidden, path), slices.Contains(v.shown, path):
			return errMuch
		}
		return nil
	})
	return all, err
}

// copyAll makes it in the new root.
func copyAll(all []copied) error {
	if err := os.MkdirAll(filepath.Dir(building+all[0].path), 0o755); err != nil {
		return err
	}
	for _, c := range all {
		if err := c.copy(); err != nil {
			return err
		}
	}
	for _, c := range slices.Backward(all) { // those of folders change when something is made in them
		if c.info.Mode().Type() == fs.ModeSymlink {
			continue
		}
		if err := os.Chtimes(building+c.path, c.info.ModTime(), c.info.ModTime()); err != nil {
			return err
		}
	}
	return nil
}

func (c copied) copy() error {
	to := building + c.path
	switch c.info.Mode().Type() {
	case fs.ModeDir:
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
	case fs.ModeSymlink:
		target, err := os.Readlink(c.path)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	default:
		text, err := os.ReadFile(c.path)
		if err == nil {
			err = os.WriteFile(to, text, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return os.Chmod(to, c.info.Mode().Perm()) // independent of the umask
}
