package cas

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// A layout says how the files of a folder are named and counted.
type layout[K comparable] struct {
	groups []string       // the folders right below, each with one folder per first hash byte
	path   func(K) string // relative to the folder: group/xx/name
	// parse is the inverse of path; ok is false for a name that path never makes.
	parse func(path string) (k K, ok bool)
	// whole reports whether a file of that many bytes can be the one of k.
	whole func(k K, bytes int64) bool
	cost  func(K) int64
}

// files is a bounded folder of files that never change, named by a key: what
// Store and Actions have in common. The folder is locked against other
// processes. mu is held for looking and deciding only, never during I/O.
type files[K comparable] struct {
	dir    string
	layout layout[K]
	log    *zap.Logger
	lock   *os.File
	serial atomic.Int64 // names temporary files; they are removed at the start

	mu     sync.Mutex
	index  *index[K] // guarded by mu
	closed bool      // guarded by mu
}

func (f *files[K]) path(k K) string { return filepath.Join(f.dir, f.layout.path(k)) }

func (f *files[K]) tempDir() string { return filepath.Join(f.dir, "tmp") }

// close lets another process have the folder.
func (f *files[K]) close() error {
	f.mu.Lock()
	closed := f.closed
	f.closed = true
	f.mu.Unlock()
	if closed {
		return nil
	}
	return f.lock.Close()
}

// contains reports whether k is there, without counting as a use.
func (f *files[K]) contains(k K) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.closed && f.index.lookup(k) != nil
}

// useChunk is how many keys are looked up in one hold of the lock.
const useChunk = 256

// use counts as a use of each of ks and returns those that are not there.
func (f *files[K]) use(ks []K) (missing []K) {
	now := time.Now()
	for len(ks) > 0 {
		chunk := ks[:min(len(ks), useChunk)]
		ks = ks[len(chunk):]
		var stamps []K
		f.mu.Lock()
		for _, k := range chunk {
			var hit, stamp bool
			if !f.closed {
				hit, stamp = f.index.use(k, now.Unix())
			}
			if !hit {
				missing = append(missing, k)
			}
			if stamp {
				stamps = append(stamps, k)
			}
		}
		f.mu.Unlock()
		for _, k := range stamps {
			f.stamp(k, now)
		}
	}
	return missing
}

// stamp records the time of use in the file itself, for the next start. A file
// evicted meanwhile is not there; that, and any other failure, only costs order.
func (f *files[K]) stamp(k K, now time.Time) {
	if err := os.Chtimes(f.path(k), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.log.Warn("cannot record the use of a file", zap.Error(err))
	}
}

func (f *files[K]) pin(k K) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.closed && f.index.pin(k)
}

func (f *files[K]) unpin(k K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index.unpin(k)
}

// open opens the file of k for reading, which counts as a use. A file that is
// gone or has the wrong size is dropped and reported as ErrNotFound.
func (f *files[K]) open(k K) (*os.File, error) {
	f.use([]K{k})
	if !f.pin(k) {
		return nil, ErrNotFound
	}
	defer f.unpin(k)
	file, err := os.OpenFile(f.path(k), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		f.drop(k, "is gone or replaced")
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() && f.layout.whole(k, info.Size()) {
		return file, nil
	}
	_ = file.Close()
	if err != nil {
		return nil, err
	}
	f.drop(k, "has the wrong size")
	return nil, ErrNotFound
}

// drop forgets k, whose file is damaged, and removes the file.
func (f *files[K]) drop(k K, why string) {
	f.mu.Lock()
	dropped := f.index.drop(k)
	f.mu.Unlock()
	if dropped {
		f.log.Warn("dropped a file that "+why, zap.String("path", f.path(k)))
		f.remove([]K{k})
	}
}

// remove removes the files of keys that are leaving.
func (f *files[K]) remove(ks []K) {
	for _, k := range ks {
		if err := os.Remove(f.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.log.Error("cannot remove a file from the store", zap.Error(err))
		}
		f.mu.Lock()
		f.index.gone(k)
		f.mu.Unlock()
	}
}

// fits says why a file of that cost can never be put.
func (f *files[K]) fits(cost int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if cost > f.index.max {
		return fmt.Errorf("%w: it is larger than all of the store, %d", ErrNoSpace, f.index.max)
	}
	return nil
}

// reserve makes room for a file, or a part of one, of that cost. finish, within
// settle, or release ends the reservation.
func (f *files[K]) reserve(cost int64) error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return fs.ErrClosed
	}
	victims, ok := f.index.reserve(cost)
	limit, pinned, reserved := f.index.max, f.index.pinned, f.index.reserved
	f.mu.Unlock()
	f.remove(victims)
	if ok {
		return nil
	}
	return fmt.Errorf("%w: %d wanted, of %d are %d in use and %d being written",
		ErrNoSpace, cost, limit, pinned, reserved)
}

func (f *files[K]) release(cost int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index.release(cost)
}

// withRoom does op, and once more after making room when the disk is full.
// Sizes on disk are larger than those the bound counts, and the disk may be
// shared, so a disk can be full before the store is.
func (f *files[K]) withRoom(cost int64, op func() error) error {
	err := op()
	if !diskFull(err) {
		return err
	}
	f.mu.Lock()
	victims := f.index.evict(max(cost, f.index.present/64))
	f.mu.Unlock()
	f.log.Warn("the disk is full before the store is", zap.String("dir", f.dir),
		zap.Int("evicted", len(victims)))
	f.remove(victims)
	if len(victims) > 0 {
		err = op()
	}
	if diskFull(err) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}

func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// createTemp creates a file to be written, readable by all and writable by none
// once it is closed.
func (f *files[K]) createTemp() (*os.File, error) {
	path := filepath.Join(f.tempDir(), fmt.Sprintf("incoming-%d", f.serial.Add(1)))
	var file *os.File
	err := f.withRoom(1, func() (err error) {
		file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o444)
		return err
	})
	return file, err
}

// settle moves the whole file at from to its place, whose cost was reserved, and
// leaves it pinned once. When k is there already, from is removed or, if replace
// is set, takes its place. After an error the reservation and from are still there.
func (f *files[K]) settle(ctx context.Context, k K, from string, replace bool) error {
	for {
		f.mu.Lock()
		wait, exists := f.index.admit(k)
		if exists {
			f.index.pin(k)
		}
		f.mu.Unlock()
		switch {
		case wait != nil:
			select {
			case <-wait:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		case exists:
			return f.settleAgain(k, from, replace)
		default:
			return f.settleNew(k, from)
		}
	}
}

func (f *files[K]) settleNew(k K, from string) error {
	err := f.rename(from, f.path(k))
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.index.abort(k)
		return err
	}
	f.index.finish(k, f.layout.cost(k), time.Now().Unix())
	f.index.pin(k)
	return nil
}

// settleAgain disposes of from for a k that is there, and pinned by the caller.
func (f *files[K]) settleAgain(k K, from string, replace bool) error {
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
	f.use([]K{k})
	f.release(f.layout.cost(k))
	return nil
}

// rename moves from to path, whose folder it creates when it is the first there.
func (f *files[K]) rename(from, path string) error {
	return f.withRoom(1, func() error {
		err := os.Rename(from, path)
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		return os.Rename(from, path)
	})
}
