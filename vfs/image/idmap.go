package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// shownTo returns where the image is mounted as what belongs to owner. All images are made for
// the owner of most roots; for another one of Options.Namespaces a mount of the same image, once
// for each owner, changes whom the kernel says it belongs to.
func (c *Cache) shownTo(img *image, owner folder.Owner) (string, error) {
	if owner == c.owner {
		return img.point, nil
	}
	img.shown.Lock()
	defer img.shown.Unlock()
	if point, ok := img.as[owner]; ok {
		return point, nil
	}
	point := filepath.Join(filepath.Dir(img.point), fmt.Sprintf("as-%d-%d", owner.UID, owner.GID))
	if err := os.Mkdir(point, 0o755); err != nil {
		return "", err
	}
	if err := mountAs(img.point, point, c.namespaces[owner]); err != nil {
		return "", errors.Join(fmt.Errorf("mount image for user %d: %w", owner.UID, err), os.Remove(point))
	}
	if img.as == nil {
		img.as = map[folder.Owner]string{}
	}
	img.as[owner] = point
	return point, nil
}

// mountAs mounts what is at dir also at point, as it looks from within a user namespace.
func mountAs(dir, point string, namespace *os.File) error {
	fd, err := unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return &os.PathError{Op: "open_tree", Path: dir, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	attributes := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(namespace.Fd())}
	if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH, &attributes); err != nil {
		return &os.PathError{Op: "mount_setattr", Path: dir, Err: err}
	}
	if err := unix.MoveMount(fd, "", unix.AT_FDCWD, point, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return &os.PathError{Op: "move_mount", Path: point, Err: err}
	}
	return nil
}

// conceal takes the mounts of shownTo away.
func (img *image) conceal() error {
	img.shown.Lock()
	defer img.shown.Unlock()
	var errs []error
	for _, point := range img.as {
		errs = append(errs, mounts.Unmount(point, unix.MNT_DETACH), os.Remove(point))
	}
	img.as = nil
	return errors.Join(errs...)
}
