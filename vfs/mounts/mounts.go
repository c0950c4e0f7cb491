package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/mountinfo"
	"github.com/forerunner-build/forerunner/paths"
)

// maxDetachRounds limits how often the table of mounts is read again; each round removes all mounts
// that it found, so one is enough unless new mounts appear.
const maxDetachRounds = 16

// Detach removes all mounts below dir, the newest first, so overlays before their layers. It
// accesses no mount point: a dead one answers with errors.
func Detach(dir string) error {
	_, err := detachWhile(dir, func() bool { return true })
	return err
}

// detachWhile is Detach while wanted returns true, which it calls before each mount. It returns how
// many mounts it found.
func detachWhile(dir string, wanted func() bool) (found int, err error) {
	for range maxDetachRounds {
		points, err := Below(dir)
		if err != nil || len(points) == 0 {
			return found, err
		}
		for _, p := range slices.Backward(points) {
			if !wanted() {
				return found, nil
			}
			// MNT_FORCE aborts FUSE for waiting callers, even when it fails with EBUSY; other file
			// systems do not know it.
			if err := Unmount(p, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
				return found, err
			}
			found++
		}
	}
	return found, fmt.Errorf("new mounts appear as fast as they are removed")
}

// Below returns the mount points below dir, oldest first. dir is absolute and has no symlinks.
func Below(dir string) ([]string, error) {
	all, err := mountinfo.Read()
	if err != nil {
		return nil, err
	}
	return pointsBelow(all, filepath.Clean(dir)), nil
}

func pointsBelow(all []mountinfo.Mount, dir string) (points []string) {
	for _, m := range all {
		if m.Point != dir && paths.Below(m.Point, dir) {
			points = append(points, m.Point)
		}
	}
	return points
}

// Unmount unmounts path. It is no error if nothing is mounted there (EINVAL) or path does not
// exist: the action, or another process that cleans up, may have been faster.
func Unmount(path string, flags int) error {
	err := unix.Unmount(path, flags|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "unmount", Path: path, Err: err}
	}
	return nil
}
