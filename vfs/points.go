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

// layerName is the mount point of a writable layer in memory.
const layerName = "layer"

// pointsName is the folder for mount points in Options.MountDir.
const pointsName = "roots"

// mountPoints is the folder for mount points.
type mountPoints struct {
	dir     string
	mounted bool // it is in memory
	log     *zap.Logger
}

// open makes the folder. It is in memory where mounting
// is allowed: on a disk its folders would cost more than the mounts.
func (p *mountPoints) open() error {
	if err := os.Mkdir(p.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("create folder for mount points: %w", err)
	}
	err := unix.Mount(names.MountSource, p.dir, "tmpfs", unix.MS_NODEV|unix.MS_NOSUID, "mode=0755,size=16m")
	if err == nil {
		// An unmount here also unmounts in the mount namespaces of commands.
		err = unix.Mount("", p.dir, "", unix.MS_SHARED, "")
	}
	if p.mounted = err == nil; !p.mounted {
		p.log.Debug("mount points are on the disk", zap.Error(err))
	}
	return nil
}

// close removes the folder.
func (p *mountPoints) close() error {
	if p.mounted {
		p.mounted = false
		if err := mounts.Unmount(p.dir, unix.MNT_DETACH); err != nil {
			return err
		}
	}
	return mounts.RemoveEmpty(p.dir)
}

// cleanPoints removes the mounts of a killed process, and the folders of its mount points.
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
