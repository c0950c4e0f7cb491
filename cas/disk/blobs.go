package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// blobs are the files of a Store, and the empty blob, which is always there.
type blobs struct{ *files[digest.Digest] }

// contains reports whether d is there, which does not count as a use.
func (f *blobs) contains(d digest.Digest) bool { return d.IsEmptyBlob() || f.files.contains(d) }

// used reports whether d is there, which counts as a use.
func (f *blobs) used(d digest.Digest) bool {
	return d.IsEmptyBlob() || len(f.use([]digest.Digest{d})) == 0
}

// useAll returns those of ds that are not there. The others count as used.
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
func (f *blobs) emptyPath() string { return filepath.Join(f.dir, "empty") }

// mendEmpty makes the file of the empty blob if it is not there. When it was not empty,
// it is made as well and the error is a *DamagedError.
func (f *blobs) mendEmpty() error {
	info, err := os.Lstat(f.emptyPath())
	there := err == nil
	if there && info.Mode().IsRegular() && info.Size() == 0 {
		return nil
	}
	temp, err := f.createTemp()
	if err != nil {
		return err
	}
	if err := errors.Join(temp.Close(), os.Rename(temp.Name(), f.emptyPath())); err != nil {
		_ = os.Remove(temp.Name())
		return unwritable(err)
	}
	if !there {
		return nil
	}
	damaged := &cas.DamagedError{}
	for _, fn := range digest.Functions() {
		damaged.Digests = append(damaged.Digests, fn.Empty())
	}
	f.noteDamage(damaged.Digests)
	f.log.Warn("the file of the empty blob was not empty", zap.String("file", f.emptyPath()))
	return damaged
}
