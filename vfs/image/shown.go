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

// shownTo returns a mount point where the image's entries belong to owner. All images are made for
// the owner of most roots. For each other owner in Options.Namespaces, a second mount of the same
// image maps the owner.
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
	if err := mounts.As(img.point, point, c.namespaces[owner]); err != nil {
		return "", errors.Join(fmt.Errorf("mount image for user %d: %w", owner.UID, err), os.Remove(point))
	}
	if img.as == nil {
		img.as = map[folder.Owner]string{}
	}
	img.as[owner] = point
	return point, nil
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
