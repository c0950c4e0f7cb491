package cas

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// Adopt stores the finished file at path as the blob d, for which the caller
// vouches: only the size is checked, and ErrCorrupt if it differs. The file must
// be a regular one that nobody has open for writing. It is moved, or copied when
// that is impossible: from another file system, or when it has other hard links,
// through which the blob could be changed. After success path is gone; after an
// error it is where it was.
func (s *Store) Adopt(ctx context.Context, path string, d digest.Digest) error {
	if err := s.adopt(ctx, path, d); err != nil {
		return fmt.Errorf("adopt %s as blob %s: %w", path, d, err)
	}
	s.unpin(d)
	return nil
}

// adopt does what Adopt does and leaves d pinned.
func (s *Store) adopt(ctx context.Context, path string, d digest.Digest) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.IsZero() {
		return fmt.Errorf("%w: it is not set", digest.ErrInvalid)
	}
	// Not to wait for a writer should it be a pipe, not to follow should it be a link.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	switch {
	case !info.Mode().IsRegular():
		return fmt.Errorf("it is not a regular file (%s)", info.Mode())
	case info.Size() != d.SizeBytes():
		return fmt.Errorf("%w: it has %d bytes", ErrCorrupt, info.Size())
	case isMetacopy(file):
		return errors.New("it is the metadata of a file below an overlay, without its bytes")
	}
	if there, err := s.pinSound(ctx, d); err != nil {
		return err
	} else if there {
		return s.discard(path, d)
	}
	moved := false
	if info.Sys().(*syscall.Stat_t).Nlink == 1 {
		if moved, err = s.move(ctx, file, d); err != nil {
			return err
		}
	}
	if moved {
		return nil
	}
	err = s.write(ctx, d, func(w *roomWriter) error { return w.copyFrom(ctx, file) })
	if err != nil {
		return err
	}
	return s.discard(path, d)
}

// discard removes path, whose blob d is there and pinned.
func (s *Store) discard(path string, d digest.Digest) error {
	err := os.Remove(path)
	if err != nil {
		s.unpin(d)
	}
	return err
}

// move renames file to its place in the store. Without an error and without
// moved, the file is on another file system or belongs to another user.
func (s *Store) move(ctx context.Context, file *os.File, d digest.Digest) (moved bool, err error) {
	if err := s.files.reserve(d.SizeBytes()); err != nil {
		return false, err
	}
	defer func() {
		if !moved {
			s.files.release(d.SizeBytes())
		}
	}()
	err = protect(file)
	if err == nil {
		err = s.files.settle(ctx, d, file.Name(), false)
	}
	if errors.Is(err, unix.EXDEV) || errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	return err == nil, err
}

// protect makes file what a blob is: owned by this process's user, not writable,
// used now.
func protect(file *os.File) error {
	if err := file.Chown(os.Geteuid(), os.Getegid()); err != nil {
		return err
	}
	if err := file.Chmod(0o444); err != nil {
		return err
	}
	now := time.Now()
	return os.Chtimes(file.Name(), now, now)
}

// isMetacopy reports whether file, of an overlay's upper folder, has the right
// size but no bytes, which are still below (overlayfs, "Metadata only copy up").
func isMetacopy(file *os.File) bool {
	_, err := unix.Fgetxattr(int(file.Fd()), "trusted.overlay.metacopy", nil)
	return err == nil
}
