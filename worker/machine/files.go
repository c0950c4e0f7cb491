package machine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/zeebo/blake3"

	"github.com/forerunner-build/forerunner/mountinfo"
	"github.com/forerunner-build/forerunner/paths"
)

// The limits of an examination. A machine that shows more needs a name.
const (
	maxFiles = 4_000_000
	maxBytes = 128 << 30
)

// errMuch: a machine shows more files than the limit.
var errMuch = fmt.Errorf("more than %d files or %d GiB are shown", maxFiles, maxBytes>>30)

// visibleFiles are the files of a machine that commands see.
type visibleFiles struct {
	shown  []string // clean paths of shown files; symlinks are not followed
	hidden []string // real paths of hidden files
}

// An entry is something that commands see.
type entry struct {
	path string
	info fs.FileInfo
	stat *syscall.Stat_t
}

// roots are the existing paths that are below no other, in order.
func (s visibleFiles) roots() (roots []string, err error) {
	for _, path := range slices.Compact(slices.Sorted(slices.Values(s.shown))) {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(roots, func(r string) bool { return paths.Below(path, r) }) {
			roots = append(roots, path)
		}
	}
	return roots, nil
}

// walk calls f for each thing in s, once, in the order of names.
func (s visibleFiles) walk(ctx context.Context, f func(entry) error) error {
	roots, err := s.roots()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := s.walkBelow(ctx, root, f); err != nil {
			return err
		}
	}
	return nil
}

func (s visibleFiles) walkBelow(ctx context.Context, root string, f func(entry) error) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil && e != nil && errors.Is(err, fs.ErrPermission):
			return nil // a process that cannot list it cannot run files in it
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case slices.Contains(s.hidden, path):
			return skip(e)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: its attributes are unknown", path)
		}
		return f(entry{path, info, stat})
	})
}

func skip(e fs.DirEntry) error {
	if e.IsDir() {
		return fs.SkipDir
	}
	return nil
}

// A glance has the state of files: where they are, and when each was changed last.
type glance struct {
	sum    [32]byte
	mounts string
	// latest is the latest time at which one was changed, in ns, and changed which that is.
	latest  int64
	changed string
}

// glance checks all files without reading them.
func (s visibleFiles) glance(ctx context.Context) (g glance, err error) {
	if g.mounts, err = s.mounts(); err != nil {
		return g, err
	}
	h, files, bytes := blake3.New(), 0, int64(0)
	var b []byte
	err = s.walk(ctx, func(e entry) error {
		st := e.stat
		if files++; e.info.Mode().IsRegular() {
			bytes += st.Size
		}
		if files > maxFiles || bytes > maxBytes {
			return errMuch
		}
		if at := st.Ctim.Nano(); at > g.latest {
			g.latest, g.changed = at, e.path
		}
		b = appendText(b[:0], e.path)
		for _, n := range []int64{
			int64(st.Dev), int64(st.Ino), int64(st.Mode), int64(st.Uid), int64(st.Gid), int64(st.Rdev), st.Size, st.Mtim.Nano(), st.Ctim.Nano(),
		} {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
		_, err := h.Write(b)
		return err
	})
	copy(g.sum[:], h.Sum(nil))
	return g, err
}

// mounts lists the mounts at shown paths.
func (s visibleFiles) mounts() (string, error) {
	all, err := mountinfo.Read()
	if err != nil {
		return "", err
	}
	roots, err := s.roots()
	if err != nil {
		return "", err
	}
	var lines []string
	for _, m := range all {
		if slices.ContainsFunc(roots, func(r string) bool { return paths.Below(m.Point, r) }) &&
			!slices.ContainsFunc(s.hidden, func(dir string) bool { return paths.Below(m.Point, dir) }) {
			lines = append(lines, m.Line)
		}
	}
	return strings.Join(lines, "\n"), nil
}

// digest reads all files. Machines have the same digest if their commands see the same names,
// owners, modes, times and content.
func (s visibleFiles) digest(ctx context.Context) (string, error) {
	h := blake3.New()
	buffer := make([]byte, 1<<20)
	var b []byte
	err := s.walk(ctx, func(e entry) error {
		st := e.stat
		b = appendText(b[:0], e.path)
		for _, n := range []int64{int64(st.Mode), int64(st.Uid), int64(st.Gid), int64(st.Rdev), st.Mtim.Nano()} {
			b = binary.BigEndian.AppendUint64(b, uint64(n))
		}
		var err error
		switch e.info.Mode().Type() {
		case 0:
			b, err = appendContent(ctx, b, e.path, buffer)
		case fs.ModeSymlink:
			var target string
			target, err = os.Readlink(e.path)
			b = appendText(b, target)
		}
		if err != nil {
			return err
		}
		_, err = h.Write(b)
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil)), err
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendContent appends the size and a hash of a file. If the file is unreadable for commands, its
// content does not count.
func appendContent(ctx context.Context, b []byte, path string, buffer []byte) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		return appendText(b, "closed"), nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h, size := blake3.New(), uint64(0)
	for {
		n, err := f.Read(buffer)
		_, _ = h.Write(buffer[:n]) // it never fails
		size += uint64(n)
		switch {
		case err == io.EOF:
			return h.Sum(binary.BigEndian.AppendUint64(b, size)), nil
		case err != nil:
			return nil, err
		case ctx.Err() != nil:
			return nil, ctx.Err()
		}
	}
}
