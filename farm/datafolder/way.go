package datafolder

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// mostLinks is how many symlinks the way to a folder may lead through, as in the kernel.
const mostLinks = 40

// A way leads to a folder as the kernel goes, one name or symlink at a time. It makes the folders
// that are missing.
type way struct {
	fd    int      // the folder that it has come to
	path  string   // of it, without symlinks
	names []string // that are left
	links int      // that it has come through
}

// Make makes a folder, and those above it. It fails if another user has made one of them, or a
// symlink there, in a folder where everybody may, such as /tmp: that user could put anything into
// it. It makes nothing in such a folder.
func Make(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	w := &way{fd: -1}
	defer w.leave()
	if err := w.follow(dir); err != nil {
		return err
	}
	for len(w.names) > 0 {
		if err := w.step(); err != nil {
			return err
		}
	}
	return nil
}

// follow inserts the parts of a path as the next ones.
func (w *way) follow(path string) error {
	w.names = append(strings.FieldsFunc(path, func(r rune) bool { return r == '/' }), w.names...)
	if !filepath.IsAbs(path) {
		return nil
	}
	return w.enter("/", "/")
}

// enter continues in a folder, whose name is relative to the present one.
func (w *way) enter(name, path string) error {
	from := w.fd
	if from < 0 {
		from = unix.AT_FDCWD
	}
	fd, err := unix.Openat(from, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	w.leave()
	w.fd, w.path = fd, path
	return nil
}

func (w *way) leave() {
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
	}
}

// step takes the next name.
func (w *way) step() error {
	name := w.names[0]
	path := filepath.Join(w.path, name)
	if name == "." || name == ".." {
		w.names = w.names[1:]
		return w.enter(name, path)
	}
	var own unix.Stat_t
	err := unix.Fstatat(w.fd, name, &own, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		if err := unix.Mkdirat(w.fd, name, 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
			return &os.PathError{Op: "mkdir", Path: path, Err: err}
		}
		err = unix.Fstatat(w.fd, name, &own, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := w.checkOwner(path, &own); err != nil {
		return err
	}
	w.names = w.names[1:]
	if own.Mode&unix.S_IFMT != unix.S_IFLNK {
		return w.enter(name, path)
	}
	if w.links++; w.links > mostLinks {
		return &os.PathError{Op: "open", Path: path, Err: unix.ELOOP}
	}
	target := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(w.fd, name, target)
	if err != nil {
		return &os.PathError{Op: "readlink", Path: path, Err: err}
	}
	return w.follow(string(target[:n]))
}

// checkOwner returns an error if another user has made the file at a path, in a place where
// everybody may.
func (w *way) checkOwner(path string, own *unix.Stat_t) error {
	var folder unix.Stat_t
	if err := unix.Fstat(w.fd, &folder); err != nil {
		return &os.PathError{Op: "stat", Path: w.path, Err: err}
	}
	const everybody = 0o002
	if folder.Mode&everybody != 0 && own.Uid != 0 && int(own.Uid) != os.Geteuid() {
		return &advised{fmt.Errorf("%s belongs to user %d, who made it in %s, where everybody may", path, own.Uid, w.path), otherFolder}
	}
	return nil
}
