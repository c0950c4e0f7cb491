package mounts

import (
	"os"

	"golang.org/x/sys/unix"
)

// As mounts dir also at point, read-only, as seen from a user namespace: files of user and group 0
// belong to the IDs to which the namespace maps these.
func As(dir, point string, namespace *os.File) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	attributes := unix.MountAttr{
		Attr_set: unix.MOUNT_ATTR_IDMAP | unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NODEV, Userns_fd: uint64(namespace.Fd()),
	}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		return &os.PathError{Op: "mount_setattr", Path: dir, Err: err}
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, point, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: point, Err: err}
	}
	return nil
}
