package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// pointsName is the folder for mount points in Options.MountDir.
const pointsName = "roots"

// openPoints makes the folder for mount points. It is in memory where mounting
// is allowed: on a disk its folders would cost more than the mounts.
func (f *FS) openPoints() error {
	f.pointDir = filepath.Join(f.mountDir, pointsName)
	if err := os.Mkdir(f.pointDir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("create folder for mount points: %w", err)
	}
	err := unix.Mount(names.MountSource, f.pointDir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=0755,size=16m")
	if err == nil {
		// What is unmounted here goes from the mount namespaces of commands too.
		err = unix.Mount("", f.pointDir, "", unix.MS_SHARED, "")
	}
	if f.pointsUp = err == nil; !f.pointsUp {
		f.log.Debug("mount points are on the disk", zap.Error(err))
	}
	return nil
}

// closePoints removes the folder.
func (f *FS) closePoints() error {
	if f.pointsUp {
		f.pointsUp = false
		if err := mounts.Unmount(f.pointDir, unix.MNT_DETACH); err != nil {
			return err
		}
	}
	return mounts.RemoveEmpty(f.pointDir)
}

// cleanPoints takes away what a killed process left mounted, and the folders of its mount points.
func (f *FS) cleanPoints() error {
	if err := mounts.Detach(f.mountDir); err != nil {
		return fmt.Errorf("clean up mounts below %s: %w", f.mountDir, err)
	}
	points := filepath.Join(f.mountDir, pointsName)
	err := removeMountPoints(points, f.log)
	if err == nil {
		err = mounts.RemoveEmpty(points)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("clean up %s: %w", f.mountDir, err)
	}
	return nil
}
