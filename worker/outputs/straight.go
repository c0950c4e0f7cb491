package outputs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	vfsfolder "github.com/forerunner-build/forerunner/vfs/folder"
)

// openTop opens the folder of a root, for openStraight.
func openTop(root *os.Root) (*os.File, error) {
	top, err := root.OpenFile(".", unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open input root: %w", err)
	}
	return top, nil
}

// openStraight opens the directory dir below the folder top, if no symlink leads to it.
func openStraight(top int, dir string) (int, error) {
	return vfsfolder.OpenBelow(top, dir, unix.O_PATH)
}

// makeStraight makes the directory dir below the folder top, and those on the way, of which those on
// the way to last exist. It follows no symlink.
func makeStraight(top int, last, dir string) error {
	rest, ok := below(last, dir)
	for !ok {
		last = path.Dir(last)
		rest, ok = below(last, dir)
	}
	at, err := openStraight(top, last)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(at) }()
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest, "/")
		switch err := unix.Mkdirat(at, name, 0o755); {
		case err == nil && rest == "":
			return nil
		case err != nil && !errors.Is(err, unix.EEXIST):
			return err
		}
		next, err := openStraight(at, name)
		if err != nil {
			return err
		}
		_ = unix.Close(at)
		at = next
	}
	return nil
}

// below returns the path from the folder at base to dir, empty if they are the same. It is false if
// dir is not below base.
func below(base, dir string) (rest string, ok bool) {
	switch base {
	case dir:
		return "", true
	case ".":
		return dir, true
	}
	rest, ok = strings.CutPrefix(dir, base)
	rest, slash := strings.CutPrefix(rest, "/")
	return rest, ok && slash
}

// A lookout looks at paths in a root. It has the folder of the last one open, for outputs mostly come
// in runs.
type lookout struct {
	root *os.Root
	top  *os.File
	dir  string // path of the folder; empty before the first
	in   int    // the folder; negative if a symlink leads there, or it does not exist
}

func newLookout(root *os.Root) (*lookout, error) {
	top, err := openTop(root)
	if err != nil {
		return nil, err
	}
	return &lookout{root: root, top: top, in: -1}, nil
}

// lstat is Root.Lstat, and also reports whether it is certain that no symlink leads to the folder of
// the file.
func (l *lookout) lstat(full string) (info fs.FileInfo, straight bool, err error) {
	if dir := path.Dir(full); dir != l.dir {
		l.leave()
		if in, err := openStraight(int(l.top.Fd()), dir); err == nil {
			l.in = in
		}
		l.dir = dir
	}
	if l.in >= 0 {
		name := path.Base(full)
		if info, err = os.Lstat(fmt.Sprintf("/proc/self/fd/%d/%s", l.in, name)); err == nil {
			return info, true, nil
		}
		if err = unix.Fstatat(l.in, name, &unix.Stat_t{}, unix.AT_SYMLINK_NOFOLLOW); errors.Is(err, fs.ErrNotExist) {
			return nil, true, err // and not /proc
		}
	}
	info, err = l.root.Lstat(full)
	return info, false, err
}

// leave closes the folder of the last path.
func (l *lookout) leave() {
	if l.in >= 0 {
		_ = unix.Close(l.in)
		l.in = -1
	}
}

func (l *lookout) close() {
	l.leave()
	_ = l.top.Close()
}
