package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// removeMountPoints removes the folders that roots left below dir, if they are empty: other entries
// are not ours, and stay.
func removeMountPoints(dir string, log *zap.Logger) error {
	roots, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, root := range roots {
		if !root.IsDir() {
			log.Warn("ignored an entry that is not a mount point", zap.String("path", filepath.Join(dir, root.Name())))
			continue
		}
		for _, sub := range []string{"root", "lower", layerName, ""} {
			path := filepath.Join(dir, root.Name(), sub)
			err := unix.Rmdir(path)
			if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
				log.Warn("ignored an entry that is not a mount point", zap.String("path", path))
			} else if err != nil && !errors.Is(err, unix.ENOENT) {
				return &os.PathError{Op: "remove", Path: path, Err: err}
			}
		}
	}
	return nil
}

// removeLayers moves the writable layers in the upper folder to the trash, and the files that roots
// had links to. Other entries are not ours, and stay.
func (f *FS) removeLayers() error {
	if err := f.trash.Sweep(); err != nil {
		return err
	}
	entries, err := os.ReadDir(f.upperDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(f.upperDir, e.Name())
		if path == f.trash.Dir() {
			continue
		}
		if path != f.linkDir() && path != f.plainDir() && !isLayer(path) {
			f.log.Warn("ignored an entry that is not a writable layer", zap.String("path", path))
			continue
		}
		if err := f.trash.Put(path); err != nil {
			return err
		}
	}
	return nil
}

// isLayer reports whether path is a folder that holds nothing but layers of a root.
func isLayer(path string) bool {
	entries, err := os.ReadDir(path)
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(entries, func(e os.DirEntry) bool {
		return e.Name() != "upper" && e.Name() != "work" && e.Name() != "lower"
	})
}
