package cas

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
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
	// right reports whether these are the bytes of k. Nil: who reads them sees it.
	right func(k K, r io.Reader) bool
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
	file, wrong, err := f.openWhole(k)
	if wrong != "" {
		f.drop(k, wrong)
		return nil, ErrNotFound
	}
	return file, err
}

// peek opens the file of k for reading, which does not count as a use and does not keep it from being
// evicted. It is never one that is being written.
func (f *files[K]) peek(k K) (*os.File, error) {
	if !f.contains(k) {
		return nil, ErrNotFound
	}
	file, wrong, err := f.openWhole(k)
	if wrong != "" {
		return nil, ErrNotFound
	}
	return file, err
}

// openWhole opens the file of k for reading, or says what is wrong with it.
func (f *files[K]) openWhole(k K) (file *os.File, wrong string, err error) {
	file, err = os.OpenFile(f.path(k), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ELOOP) {
		return nil, "is gone or replaced", nil
	}
	if err != nil {
		return nil, "", err
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() && f.layout.whole(k, info.Size()) {
		return file, "", nil
	}
	_ = file.Close()
	if err != nil {
		return nil, "", err
	}
	return nil, "has the wrong size", nil
}

// read returns the size bytes of the file of k. It does what open does and reads, with
// half the system calls; it is for small files.
func (f *files[K]) read(k K, size int64) ([]byte, error) {
	f.use([]K{k})
	if !f.pin(k) {
		return nil, ErrNotFound
	}
	defer f.unpin(k)
	path := f.path(k)
	// Nonblocking, so that what is no file does not hold anybody up.
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		f.drop(k, "is gone or replaced")
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, size+1) // one more, to see that there are no more
	n := 0
	for n < len(b) {
		m, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, b[n:]) })
		if err != nil {
			return nil, &fs.PathError{Op: "read", Path: path, Err: err}
		}
		if m == 0 {
			break
		}
		n += m
	}
	if int64(n) != size {
		f.drop(k, "has the wrong size")
		return nil, ErrNotFound
	}
	return b[:n:n], nil
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
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
