package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
	"github.com/forerunner-build/forerunner/eintr"
)

// reserve makes room for a file, or a part of one, of that cost. admitted, within
// settle, or release ends the reservation.
func (f *files) reserve(cost int64) error {
	victims, err := f.claim(cost)
	f.remove(victims)
	return err
}

// fullShare: on a full disk, an eviction removes at least 1/fullShare of the store.
const fullShare = 64

// withSpace does op, and once more after making room when the disk is full.
// Sizes on disk are larger than those the bound counts, and the disk may be
// shared, so a disk can be full before the store is.
func (f *files) withSpace(cost int64, op func() error) error {
	err := op()
	if !diskFull(err) {
		return unwritable(err)
	}
	victims, _ := f.evict(cost, fullShare)
	f.log.Warn("the disk is full although the store is below its limit", zap.String("dir", f.Dir),
		zap.Int("evicted", len(victims)))
	f.remove(victims)
	if len(victims) > 0 {
		err = op()
	}
	if diskFull(err) {
		return fmt.Errorf("%w: %w", cas.ErrNoSpace, err)
	}
	return unwritable(err)
}

// unwritable adds to an error that a file is immutable, or on a read-only disk.
func unwritable(err error) error {
	found := []error{
		syscall.EROFS, fs.ErrPermission, syscall.EIO, syscall.EUCLEAN, syscall.EBADMSG,
		// Something else is in a folder's place.
		syscall.ENOTDIR, syscall.ELOOP, syscall.EEXIST,
	}
	if slices.ContainsFunc(found, func(e error) bool { return errors.Is(err, e) }) {
		return fmt.Errorf("%w: %w", cas.ErrUnwritable, err)
	}
	return err
}

// Evict evicts the least recently used blobs until it has freed that many bytes or only pinned
// blobs are left. It returns the total size of the evicted blobs.
func (s *Store) Evict(bytes int64) int64 {
	victims, made := s.files.evict(bytes, 0)
	s.files.remove(victims)
	return made
}

func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// createTemp creates a file to be written, Readable by all and writable by none
// once it is closed.
func (f *files) createTemp() (*os.File, error) {
	name := string(filepath.Separator) + "incoming-" + strconv.FormatInt(f.serial.Add(1), 10)
	var file *os.File
	create := func(dir string) (err error) {
		file, err = newFile(dir + name)
		return err
	}
	dir := f.TempDir()
	if f.scatter != nil {
		dir = f.scatter.Next()
	}
	err := f.withSpace(1, func() error {
		if err := create(dir); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// The folder is no longer used, or another process has removed it.
		if err := os.Mkdir(f.TempDir(), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return create(f.TempDir())
	})
	return file, err
}

// newFile makes a file, without the attempt of os.OpenFile to poll it, which takes five calls.
func newFile(path string) (*os.File, error) {
	const flags = unix.O_RDWR | unix.O_CREAT | unix.O_EXCL | unix.O_CLOEXEC
	fd, err := eintr.Ignore(func() (int, error) { return unix.Open(path, flags, 0o444) })
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// An arrival is a complete file on its way to its place.
type arrival struct {
	from    string
	replace bool         // it replaces an existing one
	seal    *tamper.Seal // nil: the file is not verified
}

// settle moves a file with a reserved cost to its place, and leaves it pinned once. If k exists
// already, it removes or replaces the old file. After an error the reservation and the file still
// exist.
func (f *files) settle(ctx context.Context, k digest.Digest, a arrival) error {
	for {
		wait, exists := f.admit(k)
		switch {
		case wait != nil:
			select {
			case <-wait:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case exists:
			return f.settleAgain(k, a.from, a.replace)
		default:
			return f.settleNew(k, a)
		}
	}
}

func (f *files) settleNew(k digest.Digest, a arrival) error {
	now := time.Now()
	mark, whole, err := a.seal.Move(a.from, func() (string, error) {
		to := f.path(k)
		return to, f.rename(a.from, to)
	})
	if err != nil {
		f.abort(k)
		return err
	}
	var known proof
	if whole {
		known = provenAt(now, mark)
	} // otherwise it is verified before it is relied on
	f.replaced(k)
	f.admitted(k, f.layout.cost(k), now.Unix(), known)
	return nil
}

// settleAgain removes from, or replaces the file of k by it. k must exist and be pinned by the
// caller.
func (f *files) settleAgain(k digest.Digest, from string, replace bool) error {
	var err error
	if replace {
		err = f.rename(from, f.path(k))
	} else {
		err = os.Remove(from)
	}
	if err != nil {
		f.unpin(k)
		return err
	}
	f.release(f.layout.cost(k))
	return nil
}

// rename moves from to path, and creates the folder for its first file.
func (f *files) rename(from, path string) error {
	return f.withSpace(1, func() error {
		err := replace(from, path)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		return replace(from, path)
	})
}

// replace is os.Rename without its look at path, where never is a folder.
func replace(from, path string) error {
	_, err := eintr.Ignore(func() (int, error) { return 0, unix.Rename(from, path) })
	if err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: path, Err: err}
	}
	return nil
}
