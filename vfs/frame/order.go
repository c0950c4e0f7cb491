package frame

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
)

// Forgets reports whether a folder on the file system of dir, which is empty, shows nothing of the
// entries that it had before. Its size must be the largest that Strip allows, and the order in which it
// lists entries must not depend on earlier ones: ext4 sorts by hash. Others, such as xfs, btrfs and
// tmpfs, keep the order in which entries were made, and some of them count all that there ever were.
func Forgets(dir string) (bool, error) {
	if info, err := os.Stat(dir); err != nil || info.Size() != folder.MaxBytes {
		return false, err
	}
	names := make([]string, 16)
	for i := range names {
		names[i] = strconv.Itoa(i)
	}
	one, err := listingOf(dir, names)
	if err != nil {
		return false, err
	}
	slices.Reverse(names)
	other, err := listingOf(dir, names)
	return err == nil && slices.Equal(one, other), err
}

// listingOf returns what dir lists when these folders were made in it, in their order.
func listingOf(dir string, names []string) (listed []string, err error) {
	for _, name := range names {
		at := filepath.Join(dir, name)
		if err := os.Mkdir(at, 0o700); err != nil {
			return nil, err
		}
		defer func() { _ = os.Remove(at) }()
	}
	fd, err := openFolder(unix.AT_FDCWD, dir)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	err = folder.List(fd, func(name string) (more bool) {
		listed = append(listed, name)
		return true
	})
	return listed, err
}
