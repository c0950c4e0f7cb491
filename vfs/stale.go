package vfs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// maxDetachRounds bounds how often the table of mounts is read again; each
// round takes away all mounts that it found, so one is enough unless somebody mounts meanwhile.
const maxDetachRounds = 16

// detachBelow takes away all mounts below dir, the newest first, so overlays
// before what they lie on. It looks at no mount point: a dead one answers with errors.
func detachBelow(dir string) error {
	for range maxDetachRounds {
		points, err := mountsBelow(dir)
		if err != nil {
			return err
		}
		if len(points) == 0 {
			return nil
		}
		for _, p := range slices.Backward(points) {
			// MNT_FORCE aborts FUSE for those who still wait for an answer;
			// other file systems do not know it.
			if err := unmount(p, unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("mounts come back as fast as they are taken away")
}

func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return parseMountInfo(f, dir)
}

// parseMountInfo returns the mount points below dir, oldest first. The fifth
// field of a line is the mount point, see proc_pid_mountinfo(5).
func parseMountInfo(r io.Reader, dir string) ([]string, error) {
	var points []string
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if fields := strings.SplitN(line, " ", 6); len(fields) > 4 {
			if p := unescapeOctal(fields[4]); strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") {
				points = append(points, p)
			}
		}
		if errors.Is(err, io.EOF) {
			return points, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// unescapeOctal turns \040 and the like back into the character.
func unescapeOctal(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// removeMountPoints removes the folders that roots left below dir. Only empty
// ones: what else is there is not ours, and stays.
func removeMountPoints(dir string, log *zap.Logger) error {
	roots, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, root := range roots {
		if !root.IsDir() {
			log.Warn("left alone what is not a mount point", zap.String("path", filepath.Join(dir, root.Name())))
			continue
		}
		for _, sub := range []string{"root", "lower", layerName, ""} {
			path := filepath.Join(dir, root.Name(), sub)
			err := unix.Rmdir(path)
			if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.ENOTDIR) {
				log.Warn("left alone what is not a mount point", zap.String("path", path))
			} else if err != nil && !errors.Is(err, unix.ENOENT) {
				return &os.PathError{Op: "remove", Path: path, Err: err}
			}
		}
	}
	return nil
}

// removeLayers gives the writable layers in the upper folder to the trash, and
// the files that roots had links to. What does not look like one is not ours,
// and stays.
func (f *FS) removeLayers() error {
	if err := f.trash.sweep(); err != nil {
		return err
	}
	entries, err := os.ReadDir(f.upperDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(f.upperDir, e.Name())
		if path == f.trash.dir {
			continue
		}
		if path != f.linkDir() && path != f.plainDir() && !isLayer(path) {
			f.log.Warn("left alone what is not a writable layer", zap.String("path", path))
			continue
		}
		if err := f.trash.put(path); err != nil {
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
