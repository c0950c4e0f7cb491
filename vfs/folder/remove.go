package folder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/eintr"
)

// maxOpenFolders limits the depth to which folders stay open during a removal. Each level takes a
// descriptor, and a command can make more levels than a process has descriptors.
const maxOpenFolders = 64

// RemoveTree removes path with everything below, also in folders that are not writable for their
// owner, at any depth, with few descriptors. A missing path is no error. Nobody else may be using
// the tree.
func RemoveTree(path string) error { return removeTree(path, unlink) }

// unlink removes a name that is no folder's from the open folder dir.
func unlink(dir int, name string) error { return unix.Unlinkat(dir, name, 0) }

// errStopped is the error of a removal that was stopped.
var errStopped = errors.New("the removal was stopped")

// removeTree is RemoveTree with another unlink.
func removeTree(path string, unlink func(dir int, name string) error) error {
	r := remover{unlink: unlink}
	return r.tree(path)
}

// A remover removes a tree. It tries rmdir first: most folders that an action leaves are empty, or
// have one folder in them.
type remover struct {
	unlink  func(dir int, name string) error // removes a name that is no folder's from the open folder dir
	stopped func() bool                      // asked before each removal; nil: it is never stopped
	top     int                              // the open folder
	moved   int                              // number of folders moved from below to top
}

func (r *remover) tree(path string) error {
	switch err := unix.Rmdir(path); err {
	case nil, unix.ENOENT:
		return nil
	case unix.ENOTDIR:
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	var err error
	if r.top, err = openFolder(unix.AT_FDCWD, path); err != nil {
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(r.top) }() // of a folder that was only read
	if err := r.emptied(r.top, 1, func() error { return unix.Rmdir(path) }); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// emptied empties the folder dir, which is at this depth of open folders, until rmdir can remove
// it: a folder that changes may be listed with gaps, and others may have come to the top.
func (r *remover) emptied(dir, open int, rmdir func() error) error {
	for {
		found, err := r.empty(dir, open)
		if err != nil {
			return err
		}
		if err := rmdir(); err != unix.ENOTEMPTY && err != unix.EEXIST || found == 0 {
			return err
		}
		if _, err := unix.Seek(dir, 0, io.SeekStart); err != nil {
			return err
		}
	}
}

// empty removes what the folder dir lists from here on, and returns how much that was. It continues
// after an error, and returns the first one.
func (r *remover) empty(dir, open int) (found int, failed error) {
	err := list(dir, func(name string, kind byte) error {
		if r.stopped != nil && r.stopped() {
			return errStopped
		}
		found++
		err := r.remove(dir, name, kind, open)
		if errors.Is(err, errStopped) {
			return err
		}
		if failed == nil {
			failed = err
		}
		return nil
	})
	if errors.Is(err, errStopped) {
		return found, err
	}
	return found, errors.Join(failed, err)
}

// remove removes the entry name of the folder dir, which is at this depth of open folders.
func (r *remover) remove(dir int, name string, kind byte, open int) (err error) {
	if kind != unix.DT_DIR { // not every file system knows the kind
		err = r.unlink(dir, name)
	}
	if kind == unix.DT_DIR || errors.Is(err, unix.EISDIR) {
		err = r.removeFolder(dir, name, open)
	}
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if inside := (*os.PathError)(nil); errors.As(err, &inside) || errors.Is(err, errStopped) {
		return err
	}
	return &os.PathError{Op: "remove", Path: name, Err: err}
}

func (r *remover) removeFolder(dir int, name string, open int) error {
	rmdir := func() error { return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR) }
	if err := rmdir(); err != unix.ENOTEMPTY && err != unix.EEXIST {
		return err
	}
	if open >= maxOpenFolders {
		return r.moveUp(dir, name)
	}
	sub, err := openFolder(dir, name)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(sub) }() // of a folder that was only read
	return r.emptied(sub, open+1, rmdir)
}

// moveUp moves a folder to the top, where empty finds it when it lists that again.
func (r *remover) moveUp(dir int, name string) error {
	makeOurs(dir, name)
	for {
		r.moved++
		err := unix.Renameat2(dir, name, r.top, "moved-"+strconv.Itoa(r.moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// openFolder opens a folder to remove its entries. It is no os.File, which asks the kernel more.
func openFolder(dir int, name string) (int, error) {
	makeOurs(dir, name)
	return eintr.Ignore(func() (int, error) {
		return unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	})
}

// makeOurs gives us the access to a folder that its mode may deny. If that fails, the next step
// fails, too, with the reason.
func makeOurs(dir int, name string) {
	if os.Geteuid() != 0 {
		_ = unix.Fchmodat(dir, name, 0o700, 0)
	}
}
