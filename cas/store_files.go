package cas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
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
	// setAside takes a damaged file out of its place. Nil: it is removed.
	setAside func(k K, path, found string)

	mu     sync.Mutex
	index  *index[K] // guarded by mu
	closed bool      // guarded by mu
	proved bool      // guarded by mu; proofs have changed since this was set to false
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
	before, _ := markOf(f.path(k))
	if err := os.Chtimes(f.path(k), now, now); err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.log.Warn("cannot record the use of a file", zap.Error(err))
	}
	after, err := markOf(f.path(k))
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.index.lookup(k); e != nil && err == nil && e.proof.mark == before {
		e.proof.mark = after // the change was ours
		f.proved = true
	}
}

func (f *files[K]) pin(k K) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.closed && f.index.pin(k)
}

// pinFile pins k and tells which generation of its files that is.
func (f *files[K]) pinFile(k K) (generation uint64, ok bool) {
	generation, _, ok = f.pinProof(k)
	return generation, ok
}

// pinProof pins k and tells which generation of its files that is, and what is known of
// that one.
func (f *files[K]) pinProof(k K) (generation uint64, p proof, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || !f.index.pin(k) {
		return 0, proof{}, false
	}
	e := f.index.entries[k]
	return e.generation, e.proof, true
}

// has reports whether the file of k is the one of that generation.
func (f *files[K]) has(k K, generation uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.index.lookup(k)
	return e != nil && e.generation == generation
}

// prove notes what is known of the file of k, if it still is the one of that generation.
func (f *files[K]) prove(k K, generation uint64, p proof) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.index.lookup(k); e != nil && e.generation == generation {
		e.proof = p
		f.proved = true
	}
}

// proven is a file that was verified.
type proven[K comparable] struct {
	key   K
	proof proof
}

// proofs yields what is known of all files that were verified, of up to n files at a time.
// What comes and goes meanwhile may be among them or not. The slice is overwritten by the
// next one.
func (f *files[K]) proofs(n int) iter.Seq[[]proven[K]] {
	return func(yield func([]proven[K]) bool) {
		chunk, looked := make([]proven[K], 0, n), 0
		f.mu.Lock()
		for k, e := range f.index.entries {
			if e.state == present && e.proof.at != 0 {
				chunk = append(chunk, proven[K]{k, e.proof})
			}
			if looked++; looked%n != 0 {
				continue
			}
			// A map may change while it is walked, if not at the same time.
			f.mu.Unlock()
			if !yield(chunk) {
				return
			}
			chunk = chunk[:0]
			f.mu.Lock()
		}
		f.mu.Unlock()
		yield(chunk)
	}
}

// noteDamage notes that files of ks were damaged, which are none of the index's.
func (f *files[K]) noteDamage(ks []K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range ks {
		f.index.damaged.add(k)
	}
}

// damages returns how many files were damaged since the start.
func (f *files[K]) damages() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.index.damaged.count
}

// damagedSince returns those of ks that had a damaged file after so many others had.
func (f *files[K]) damagedSince(ks []K, count uint64) (damaged []K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range ks {
		if f.index.damaged.since(k, count) {
			damaged = append(damaged, k)
		}
	}
	return damaged
}

func (f *files[K]) unpin(k K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index.unpin(k)
}

// open opens the file of k for reading, which counts as a use, and tells its generation.
// A file that is gone or has the wrong size is dropped and reported as ErrNotFound.
func (f *files[K]) open(k K) (file *os.File, generation uint64, err error) {
	f.use([]K{k})
	generation, ok := f.pinFile(k)
	if !ok {
		return nil, 0, ErrNotFound
	}
	defer f.unpin(k)
	file, wrong, err := f.openWhole(k)
	if wrong != "" {
		f.drop(k, generation, wrong)
		return nil, 0, ErrNotFound
	}
	return file, generation, err
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
	// Nonblocking, so that what is no file does not hold anybody up.
	file, err = os.OpenFile(f.path(k), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
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

// read returns the size bytes of the file of k, and its mark before they were read. It
// does what open does and reads, with fewer system calls; it is for small files.
func (f *files[K]) read(k K, size int64) ([]byte, uint64, error) {
	f.use([]K{k})
	generation, ok := f.pinFile(k)
	if !ok {
		return nil, 0, ErrNotFound
	}
	defer f.unpin(k)
	path := f.path(k)
	// Nonblocking, so that what is no file does not hold anybody up.
	fd, err := ignoringEINTR(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ELOOP) {
		f.drop(k, generation, "is gone or replaced")
		return nil, 0, ErrNotFound
	}
	if err != nil {
		return nil, 0, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, 0, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	b := make([]byte, size+1) // one more, to see that there are no more
	n := 0
	for n < len(b) {
		m, err := ignoringEINTR(func() (int, error) { return unix.Read(fd, b[n:]) })
		if err != nil {
			f.drop(k, generation, fmt.Sprintf("cannot be read: %v", err))
			return nil, 0, ErrNotFound
		}
		if m == 0 {
			break
		}
		n += m
	}
	if int64(n) != size {
		f.drop(k, generation, "has the wrong size")
		return nil, 0, ErrNotFound
	}
	return b[:n:n], mark(&st), nil
}

func ignoringEINTR(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); err != unix.EINTR {
			return n, err
		}
	}
}

// drop forgets k if its file, which is damaged, still is the one of that generation, and
// sets the file aside or removes it.
func (f *files[K]) drop(k K, generation uint64, why string) {
	f.mu.Lock()
	e := f.index.lookup(k)
	dropped := e != nil && e.generation == generation && f.index.drop(k)
	f.mu.Unlock()
	if !dropped {
		return
	}
	if f.setAside == nil {
		f.log.Warn("dropped a file that "+why, zap.String("path", f.path(k)))
		f.remove([]K{k})
		return
	}
	f.setAside(k, f.path(k), why)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.index.gone(k)
}

// remove removes the files of keys that are leaving.
func (f *files[K]) remove(ks []K) {
	for _, k := range ks {
		found := f.damageOf(k)
		if found != "" {
			f.setAside(k, f.path(k), found)
		} else if err := os.Remove(f.path(k)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.log.Error("cannot remove a file from the store", zap.Error(err))
		}
		f.mu.Lock()
		if found != "" {
			f.index.damaged.add(k)
		}
		f.index.gone(k)
		f.mu.Unlock()
	}
}

// damageOf says what is wrong with the file of k, which is leaving: for those who used it
// this is the last occasion. It is read only if it was changed after it had been verified.
func (f *files[K]) damageOf(k K) string {
	if f.setAside == nil {
		return ""
	}
	f.mu.Lock()
	known := f.index.entries[k].proof
	f.mu.Unlock()
	m, err := markOf(f.path(k))
	if known.at == 0 || err == nil && m == known.mark {
		return ""
	}
	file, found, err := f.openWhole(k)
	if err != nil || found != "" {
		return found
	}
	defer file.Close()
	if !f.layout.right(k, file) {
		return "has other bytes than when it was verified"
	}
	return ""
}

// left waits until k is not leaving any more, and reports whether it was.
func (f *files[K]) left(ctx context.Context, k K) (bool, error) {
	f.mu.Lock()
	var settled <-chan struct{}
	if e := f.index.entries[k]; e != nil && e.state == leaving {
		settled = e.settled
	}
	f.mu.Unlock()
	if settled == nil {
		return false, nil
	}
	select {
	case <-settled:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}
