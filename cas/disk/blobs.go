package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/tamper"
)

// blobs are the files of a Store, and the empty blob, which always exists.
type blobs struct {
	*files
	emptyMark atomic.Uint64 // of the file of the empty blob when it was last seen to be right; 0: it was not
	mending   sync.Mutex    // held while that file is made
	givingWay func(op func() error) error
}

// makeRoom is reserve, which may discard unfinished uploads (Store.OnFull).
func (f *blobs) makeRoom(cost int64) error {
	if f.givingWay == nil {
		return f.reserve(cost)
	}
	return f.givingWay(func() error { return f.reserve(cost) })
}

// contains reports whether d exists. It does not count as a use.
func (f *blobs) contains(d digest.Digest) bool { return d.IsEmptyBlob() || f.files.contains(d) }

// used reports whether d exists. It counts as a use.
func (f *blobs) used(d digest.Digest) bool {
	return d.IsEmptyBlob() || len(f.use([]digest.Digest{d})) == 0
}

// useAll returns the missing ones of ds. The others count as used.
func (f *blobs) useAll(ds []digest.Digest) (missing []digest.Digest) {
	return slices.DeleteFunc(f.use(ds), digest.Digest.IsEmptyBlob)
}

// pin keeps d from being evicted until unpin is called as often as it returned true.
func (f *blobs) pin(d digest.Digest) bool { return d.IsEmptyBlob() || f.files.pin(d) }

func (f *blobs) unpin(d digest.Digest) {
	if !d.IsEmptyBlob() {
		f.files.unpin(d)
	}
}

// openBlob opens d for reading, which counts as a use.
func (f *blobs) openBlob(d digest.Digest) (*os.File, error) {
	if d.IsEmptyBlob() {
		if err := f.mendEmpty(); err != nil && !errors.Is(err, cas.ErrCorrupt) {
			return nil, fmt.Errorf("open the empty blob: %w", err)
		}
		return os.Open(f.emptyPath())
	}
	file, _, err := f.open(d)
	if errors.Is(err, cas.ErrNotFound) {
		return nil, &cas.MissingError{Digests: []digest.Digest{d}}
	}
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", d, err)
	}
	return file, nil
}

// emptyPath is the file of the empty blob of every digest function, outside the
// index: it is always there and never evicted.
func (f *blobs) emptyPath() string { return filepath.Join(f.Dir, "empty") }

// mendEmpty makes the file of the empty blob if it is missing. If another process has changed or
// removed it since the last check, mendEmpty makes it as well and returns a *DamagedError.
func (f *blobs) mendEmpty() error {
	if mark, found := f.lookAtEmpty(); found == emptyRight && mark == f.emptyMark.Load() {
		return nil
	}
	f.mending.Lock()
	defer f.mending.Unlock()
	mark, found := f.lookAtEmpty()
	known := f.emptyMark.Load()
	if found == emptyRight && (mark == known || known == 0) {
		f.emptyMark.Store(mark)
		return nil
	}
	if err := f.makeEmpty(); err != nil {
		return err
	}
	if found == emptyAbsent && known == 0 {
		return nil
	}
	damaged := &cas.DamagedError{}
	for _, fn := range digest.Functions() {
		damaged.Digests = append(damaged.Digests, fn.Empty())
	}
	f.noteDamage(damaged.Digests)
	f.log.Warn("the file of the empty blob was changed", zap.String("file", f.emptyPath()))
	return damaged
}

// makeEmpty replaces the file of the empty blob by a new one.
func (f *blobs) makeEmpty() error {
	temp, err := f.createTemp()
	if err != nil {
		return err
	}
	if err := errors.Join(temp.Close(), os.Rename(temp.Name(), f.emptyPath())); err != nil {
		_ = os.Remove(temp.Name())
		return unwritable(err)
	}
	mark, _ := f.lookAtEmpty()
	f.emptyMark.Store(mark)
	return nil
}

// The possible states of the file of the empty blob.
const (
	emptyAbsent = iota
	emptyWrong
	emptyRight
)

// lookAtEmpty returns the state of that file, and its mark if it is right, otherwise 0.
func (f *blobs) lookAtEmpty() (mark uint64, found int) {
	st, err := tamper.StatOf(f.emptyPath())
	switch {
	case err != nil:
		return 0, emptyAbsent
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != 0:
		return 0, emptyWrong
	}
	return tamper.Mark(&st), emptyRight
}
