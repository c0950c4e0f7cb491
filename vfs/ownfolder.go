package vfs

import (
	"errors"
	"fmt"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// ownFolder is a folder of one root. If make fails, the removal undoes its work.
type ownFolder struct {
	path   string
	memory int64 // if not 0, it is a file system in memory of so many bytes
	state  folderState
}

type folderState uint8

const (
	folderAbsent folderState = iota
	folderMade
	folderMounted // in memory
)

// make makes a folder for the action's view. If the root has another owner than the worker, only
// its group may pass through the folder: owners of other roots, and other users of the machine,
// cannot reach the content of the root, whatever its mode.
func (f *ownFolder) make(owner Owner) error {
	if err := f.makeClosed(); err != nil {
		return err
	}
	return f.open(owner)
}

// makeClosed makes a folder that nobody but the worker can enter until open.
func (f *ownFolder) makeClosed() error {
	if err := os.Mkdir(f.path, 0o700); err != nil {
		return err
	}
	f.state = folderMade
	if f.memory == 0 {
		return nil
	}
	// An inode costs about a kilobyte, which size does not count.
	data := fmt.Sprintf("mode=0700,size=%d,nr_inodes=%d", f.memory, max(f.memory>>10, 1024))
	if err := unix.Mount(names.MountSource, f.path, "tmpfs", unix.MS_NODEV, data); err != nil {
		return &mounts.Error{What: "tmpfs", Err: err}
	}
	f.state = folderMounted
	return nil
}

// open lets the owner of the root pass through.
func (f *ownFolder) open(owner Owner) error {
	if int(owner.UID) == os.Geteuid() {
		return nil
	}
	return errors.Join(os.Chown(f.path, -1, int(owner.GID)), os.Chmod(f.path, 0o710))
}

// drop removes the folder with all it holds, in its own time.
func (f *ownFolder) drop(trash *folder.Trash) error {
	switch {
	case f.state == folderMounted:
		return errors.Join(mounts.Unmount(f.path, unix.MNT_DETACH), mounts.RemoveEmpty(f.path))
	case f.state == folderMade && f.memory > 0:
		return mounts.RemoveEmpty(f.path)
	case f.state == folderMade:
		return trash.Put(f.path)
	}
	return nil
}

// removePoints removes the folder with the mount points that are in it, if they are empty.
func (f *ownFolder) removePoints(points ...string) error {
	if f.state == folderAbsent {
		return nil
	}
	var errs []error
	for _, dir := range append(points, f.path) {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, &os.PathError{Op: "remove", Path: dir, Err: err})
		}
	}
	return errors.Join(errs...)
}

// memoryShare: a layer in memory counts as full when less than 1/memoryShare of it is left.
const memoryShare = 64

// left returns how many bytes and files it has room for in memory, and whether it is nearly full.
// For a folder that is not in memory it returns nothing.
func (f *ownFolder) left() (bytes, files int64, full bool) {
	if f.state != folderMounted {
		return math.MaxInt64, math.MaxInt64, false
	}
	var st unix.Statfs_t
	if err := unix.Statfs(f.path, &st); err != nil {
		return 0, 0, true // unknown
	}
	bytes, files = int64(st.Bavail)*st.Bsize, int64(st.Ffree)
	return bytes, files, bytes < f.memory/memoryShare || st.Ffree < st.Files/memoryShare
}
