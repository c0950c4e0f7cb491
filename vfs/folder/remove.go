package folder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	// maxOpenFolders limits the depth to which folders stay open during a removal. Each level takes
	// a descriptor, and a command can make more levels than a process has descriptors.
	maxOpenFolders = 64
	// removeBatch is how many names of a folder are held at a time.
	removeBatch = 1024
)

// RemoveTree removes path with everything below, also in folders that are not writable for their
// owner, at any depth, with few descriptors. A missing path is no error. Nobody else may be using
// the tree.
func RemoveTree(path string) error { return removeTree(path, unlink) }

// unlink removes a name that is no folder's from the open folder dir.
func unlink(dir int, name string) error { return unix.Unlinkat(dir, name, 0) }

// errStopped, of an unlink, stops the removal at that point.
var errStopped = errors.New("the removal was stopped")

// removeTree is RemoveTree with another unlink, where path is a folder.
func removeTree(path string, unlink func(dir int, name string) error) error {
	err := os.Remove(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	top, openErr := openFolder(unix.AT_FDCWD, path)
	if errors.Is(openErr, unix.ENOTDIR) || errors.Is(openErr, unix.ELOOP) {
		return err
	}
	if openErr != nil {
		return &os.PathError{Op: "remove", Path: path, Err: openErr}
	}
	r := remover{top: top, unlink: unlink}
	if err := errors.Join(r.empty(top, 1), top.Close()); err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return os.Remove(path)
}

// A remover empties a folder.
type remover struct {
	top    *os.File
	unlink func(dir int, name string) error
	moved  int // number of folders moved from below to top
}

// empty removes the contents of the folder, which is at this depth of open folders. It continues
// after an error, and returns the first one.
func (r *remover) empty(dir *os.File, open int) (failed error) {
	for {
		names, err := dir.Readdirnames(removeBatch)
		if len(names) == 0 {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return errors.Join(failed, err)
		}
		for _, name := range names {
			err := r.remove(int(dir.Fd()), name, open)
			if errors.Is(err, errStopped) {
				return err
			}
			if failed == nil {
				failed = err
			}
		}
		if failed != nil {
			continue // a file that cannot be removed would be listed forever
		}
		// A folder that changes may be listed with gaps, and one may have come to the top.
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
}

// remove removes the entry name of the folder dir, which is at this depth of open folders.
func (r *remover) remove(dir int, name string, open int) error {
	err := r.unlink(dir, name)
	if errors.Is(err, unix.EISDIR) {
		err = r.removeFolder(dir, name, open)
	}
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if inside := (*os.PathError)(nil); errors.As(err, &inside) {
		return err
	}
	return &os.PathError{Op: "remove", Path: name, Err: err}
}

func (r *remover) removeFolder(dir int, name string, open int) error {
	if open >= maxOpenFolders {
		return r.moveUp(dir, name)
	}
	sub, err := openFolder(dir, name)
	if err != nil {
		return err
	}
	if err := errors.Join(r.empty(sub, open+1), sub.Close()); err != nil {
		return err
	}
	return unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
}

// moveUp moves a folder to the top, where empty finds it when it lists that again.
func (r *remover) moveUp(dir int, name string) error {
	makeOurs(dir, name)
	for {
		r.moved++
		err := unix.Renameat2(dir, name, int(r.top.Fd()), "moved-"+strconv.Itoa(r.moved), unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// openFolder opens a folder to remove its entries.
func openFolder(dir int, name string) (*os.File, error) {
	makeOurs(dir, name)
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// makeOurs gives us the access to a folder that its mode may deny. If that fails, the next step
// fails, too, with the reason.
func makeOurs(dir int, name string) {
	if os.Geteuid() != 0 {
		_ = unix.Fchmodat(dir, name, 0o700, 0)
	}
}
