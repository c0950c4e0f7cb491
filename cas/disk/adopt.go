package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
)

// Take makes the finished file at path a blob and returns its digest. It moves the file if no other
// process has it open; a lease proves this from before the hash until the file is in its place.
// Otherwise, and for a file from another file system, of another user, or with other hard links, it
// copies like TakeCopy. So nobody can write to the blob through an open file or a request to the
// kernel, with two exceptions, which the caller must exclude or else use TakeCopy: a descriptor
// that was opened with O_PATH can be opened again, and pages of a mapping into which io_uring reads
// stay the target of that read when mapping and file are closed.
//
// It fails with ErrNoSpace before it reads a file that the store cannot hold. After success path is
// gone; after an error it is unchanged.
func (s *Store) Take(ctx context.Context, path string, fn digest.Function) (digest.Digest, error) {
	d, err := s.take(ctx, path, fn)
	if err != nil {
		return digest.Digest{}, fmt.Errorf("take %s as a blob: %w", path, err)
	}
	s.files.unpin(d)
	return d, nil
}

// TakeCopy stores a copy of file as a blob and returns its digest. The hashed bytes are the stored
// bytes, even if another process continues to write: then they are a mixture. It reads no more than
// the initial size of file, and fails with ErrNoSpace at once if the store cannot hold that. file
// stays open and in its place.
func (s *Store) TakeCopy(ctx context.Context, file *os.File, fn digest.Function) (digest.Digest, error) {
	info, err := outputInfo(file)
	var d digest.Digest
	if err == nil {
		d, err = s.takeCopy(ctx, file, fn, info.Size())
	}
	if err != nil {
		return digest.Digest{}, fmt.Errorf("copy %s as a blob: %w", file.Name(), err)
	}
	s.files.unpin(d)
	return d, nil
}

// outputInfo is the attributes of a file that can become a blob.
func outputInfo(file *os.File) (os.FileInfo, error) {
	info, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("it is not a regular file (%s)", info.Mode())
	case isMetacopy(file):
		return nil, errors.New("it is the metadata of a file below an overlay, without its bytes")
	}
	return info, nil
}

// take is Take, but leaves the blob pinned.
func (s *Store) take(ctx context.Context, path string, fn digest.Function) (digest.Digest, error) {
	if err := ctx.Err(); err != nil {
		return digest.Digest{}, context.Cause(ctx)
	}
	// Not to wait for a writer should it be a pipe, not to follow should it be a link.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return digest.Digest{}, err
	}
	defer file.Close()
	info, err := outputInfo(file)
	if err != nil {
		return digest.Digest{}, err
	}
	if info.Sys().(*syscall.Stat_t).Nlink == 1 {
		if d, taken, err := s.takeLeased(ctx, file, fn, info.Size()); taken || err != nil {
			return d, err
		}
	}
	d, err := s.takeCopy(ctx, file, fn, info.Size())
	if err != nil {
		return d, err
	}
	return d, s.discard(path, d)
}

// takeLeased hashes and moves file while a lease keeps it as it is. Without an error and
// without taken there is no lease, or it was broken, or the file cannot be moved.
func (s *Store) takeLeased(
	ctx context.Context, file *os.File, fn digest.Function, size int64,
) (d digest.Digest, taken bool, err error) {
	if err := s.files.fits(size); err != nil {
		return d, false, err
	}
	l, ok := tamper.LeaseOf(file)
	if !ok { // otherwise l would not hold, and the hash would be useless
		return d, false, nil
	}
	defer l.Release()
	if d, err = s.buffers.hashInto(ctx, io.Discard, file, fn); err != nil || !l.Holds() {
		return d, false, err
	}
	if there, err := s.verifier.pinSound(ctx, d); err != nil {
		return d, false, err
	} else if there {
		return d, true, s.discard(file.Name(), d)
	}
	moved, err := s.move(ctx, file, d)
	if err != nil || !moved {
		return d, false, err
	}
	if !l.Holds() { // another process found the file before the move, and waits to open it for writing
		if generation, ok := s.files.pinFile(d); ok {
			s.files.drop(d, generation, "was opened for writing while it became a blob")
			s.files.unpin(d)
		}
		s.files.unpin(d)
		d, err = s.takeCopy(ctx, file, fn, size)
		return d, err == nil, err
	}
	return d, true, nil
}

// takeCopy stores the first size bytes of file, hashes them on the way, and leaves the blob pinned.
func (s *Store) takeCopy(ctx context.Context, file *os.File, fn digest.Function, size int64) (digest.Digest, error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return digest.Digest{}, err
	}
	if size == 0 {
		return fn.Empty(), nil
	}
	// The name of a blob with only a known size: it reserves space.
	unknown, err := digest.Parse(fn, strings.Repeat("0", 2*digest.HashSize), size)
	if err != nil {
		return digest.Digest{}, err
	}
	w, err := newSpaceWriter(s.files, unknown)
	if err != nil {
		return digest.Digest{}, err
	}
	d, err := s.buffers.hashInto(ctx, w, io.LimitReader(file, size), fn)
	there := false
	if err == nil {
		there, err = s.verifier.pinSound(ctx, d) // the empty blob always is
	}
	if err == nil && !there {
		if err = w.keepAs(ctx, d); err == nil {
			return d, nil
		}
	}
	w.Drop()
	return d, err
}

// keepAs makes the written file the blob d, which it is, and leaves it pinned.
func (w *spaceWriter) keepAs(ctx context.Context, d digest.Digest) error {
	w.files.release(w.reserved - d.SizeBytes()) // the difference to the reserved size
	w.reserved, w.digest = d.SizeBytes(), d
	return w.Keep(ctx)
}

// discard removes path, whose blob d exists and is pinned.
func (s *Store) discard(path string, d digest.Digest) error {
	err := os.Remove(path)
	if err != nil {
		s.files.unpin(d)
	}
	return err
}

// move renames file to its place in the store. Without an error and without
// moved, the file is on another file system or belongs to another user.
func (s *Store) move(ctx context.Context, file *os.File, d digest.Digest) (moved bool, err error) {
	if err := s.files.makeRoom(d.SizeBytes()); err != nil {
		return false, err
	}
	defer func() {
		if !moved {
			s.files.release(d.SizeBytes())
		}
	}()
	err = protect(file)
	if err == nil {
		seal := tamper.SealOf(file)
		err = s.files.settle(ctx, d, arrival{from: file.Name(), seal: &seal})
	}
	if errors.Is(err, unix.EXDEV) || errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	return err == nil, err
}

// protect gives file the attributes of a blob: owned by this process's user, not writable, used
// now.
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
