package disk

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/aside"
	"github.com/forerunner-build/forerunner/cas/disk/folder"
	"github.com/forerunner-build/forerunner/cas/scrub"
)

// A Scrubber reads and verifies a whole Store again and again.
type Scrubber = scrub.Scrubber

// NewScrubber returns a Scrubber of s, and of a unless that is nil. It sets damaged blobs aside
// like Verifier.Verify, and removes damaged results. Both must outlive its Run.
func NewScrubber(s *Store, a *Actions, o scrub.Options) (*Scrubber, error) {
	targets := []scrub.Target{&blobTarget{files: s.files, verifier: s.verifier, aside: s.aside}}
	if a != nil {
		targets = append(targets, resultTarget{a})
	}
	if o.Logger == nil {
		o.Logger = s.files.log
	}
	return scrub.New(filepath.Join(s.Dir(), scrubName), o, targets...)
}

// shards lists the folders that files are in.
func (f *files) shards() (all []string, err error) {
	for _, group := range f.layout.groups {
		entries, err := os.ReadDir(filepath.Join(f.Dir, group))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if e.IsDir() {
				all = append(all, group+"/"+e.Name())
			}
		}
	}
	return all, nil
}

// shard lists the paths in such a folder. The error for a damaged one is scrub.ErrUnlisted.
func (f *files) shard(name string) ([]string, error) {
	names, err := namesIn(filepath.Join(f.Dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) && !folder.IsOfProcess(err) {
		return nil, fmt.Errorf("%w: %w", scrub.ErrUnlisted, err)
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	for i := range names {
		names[i] = name + "/" + names[i]
	}
	return names, nil
}

func namesIn(path string) ([]string, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// blobTarget is a Store that is scrubbed.
type blobTarget struct {
	files    *blobs
	verifier *Verifier
	aside    *aside.Folder

	gone map[string]bool // missing files of the shard that was listed last
	// known are the store's blobs, at the time of the query, in the shards of near that were not
	// listed yet: their names differ in the last digit. So the index is walked once for 16 shards.
	known map[string][]digest.Digest
	near  string
}

// Shards implements scrub.Target. It includes shards of the store without a folder on the disk.
func (v *blobTarget) Shards() ([]string, error) {
	all, err := v.files.shards()
	if err != nil {
		return nil, err
	}
	v.known, v.near = nil, "" // of the pass before
	there := map[string]bool{}
	for _, shard := range all {
		there[shard] = true
	}
	for ds := range walk(&v.files.ledger, notesChunk, presentKey) {
		for _, d := range ds {
			if shard := path.Dir(BlobPath(d)); !there[shard] {
				there[shard] = true
				all = append(all, shard)
			}
		}
	}
	return all, nil
}

// Files implements scrub.Target. It includes blobs whose files were removed by others; the store
// drops these.
func (v *blobTarget) Files(shard string) ([]string, error) {
	names, err := v.files.shard(shard)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	there := make(map[string]bool, len(names))
	for _, name := range names {
		there[name] = true
	}
	v.gone = map[string]bool{}
	var lost []digest.Digest
	for _, d := range v.take(shard) {
		// Existing files are skipped: dropGone would check them one by one.
		if name := BlobPath(d); !there[name] && v.files.dropGone(d) {
			names, lost = append(names, name), append(lost, d)
			v.gone[name] = true
		}
	}
	v.aside.Miss(lost, filepath.Join(v.files.Dir, shard))
	return names, nil
}

// take returns the blobs that the store has in a shard, or had when it was asked for another one
// like it.
func (v *blobTarget) take(shard string) []digest.Digest {
	if near := shard[:len(shard)-1]; near != v.near {
		v.known, v.near = map[string][]digest.Digest{}, near
		for ds := range walk(&v.files.ledger, notesChunk, keyNear(shard)) {
			for _, d := range ds {
				of := path.Dir(BlobPath(d))
				v.known[of] = append(v.known[of], d)
			}
		}
	}
	ds := v.known[shard]
	delete(v.known, shard)
	return ds
}

// presentKey picks the keys of all files.
func presentKey(e *entry) (digest.Digest, bool) { return e.key, e.state == present }

// keyNear picks the blobs of a shard and of those whose hashes have the same first digit.
func keyNear(shard string) func(*entry) (digest.Digest, bool) {
	group, digits, _ := strings.Cut(shard, "/")
	first, err := hex.DecodeString(digits)
	return func(e *entry) (digest.Digest, bool) {
		var buffer [digest.HashSize]byte
		within := e.state == present && err == nil && len(first) == 1 &&
			e.key.Function().String() == group && e.key.AppendHash(buffer[:0])[0]>>4 == first[0]>>4
		return e.key, within
	}
}

// dropGone forgets k if its file is missing, and reports whether it is. A file is missing if the
// disk says so while k has the same file before and after.
func (f *files) dropGone(k digest.Digest) bool {
	generation, _, ok := f.look(k)
	if !ok {
		return false
	}
	if _, err := os.Lstat(f.path(k)); !errors.Is(err, os.ErrNotExist) || !f.leave(k, generation) {
		return false
	}
	f.gone(k)
	return true
}

// Holds implements scrub.Target.
func (v *blobTarget) Holds() (files, bytes int64) { return v.files.holds() }

// Check implements scrub.Target.
func (v *blobTarget) Check(ctx context.Context, name string, since time.Time, r *scrub.Reader) (scrub.Verdict, error) {
	if v.gone[name] {
		return scrub.Damaged, nil
	}
	d, ok := ParseBlobPath(name)
	if !ok || v.verifier.verifiedSince(d, since) {
		return scrub.Passed, nil
	}
	switch err := v.read(ctx, d, r); {
	case err == nil:
		return scrub.Whole, nil
	case errors.Is(err, scrub.ErrGone), errors.Is(err, cas.ErrNotFound):
		return scrub.Passed, nil
	case ctx.Err() != nil:
		return scrub.Passed, ctx.Err()
	}
	// Verify reads a wrong blob once more, and sets it aside.
	switch err := v.verifier.Verify(ctx, d); {
	case err == nil:
		return scrub.Whole, nil
	case errors.Is(err, cas.ErrNotFound):
		return scrub.Passed, nil
	case ctx.Err() != nil:
		return scrub.Passed, ctx.Err()
	case !errors.Is(err, cas.ErrCorrupt): // which is already reported
		v.files.log.Warn("cannot read a blob of the store", zap.Stringer("digest", d), zap.Error(err))
	}
	return scrub.Damaged, nil
}

// read reads the file of d, and notes that it is right or fails.
func (v *blobTarget) read(ctx context.Context, d digest.Digest, r *scrub.Reader) error {
	f := v.files
	generation, _, ok := f.look(d)
	if !ok {
		return cas.ErrNotFound
	}
	file, found, err := f.openWhole(d)
	if found != "" {
		return cas.ErrCorrupt
	}
	if err != nil {
		return err
	}
	defer file.Close()
	f.verify(d)
	defer f.endVerify(d)
	reading, err := beginReading(file.Fd())
	if err != nil {
		return err
	}
	hasher := digest.NewHasher(d.Function())
	if _, err := r.Copy(ctx, hasher, file, func() bool { return f.has(d, generation) }); err != nil {
		return err
	}
	v.verifier.checks.count(hasher.SizeBytes())
	if hasher.Digest() != d {
		return cas.ErrCorrupt
	}
	f.prove(d, generation, reading.proof())
	return nil
}

// resultTarget is Actions that are scrubbed.
type resultTarget struct{ actions *Actions }

// Shards implements scrub.Target.
func (v resultTarget) Shards() ([]string, error) { return v.actions.files.shards() }

// Files implements scrub.Target.
func (v resultTarget) Files(shard string) ([]string, error) { return v.actions.files.shard(shard) }

// Holds implements scrub.Target. A file's size in bytes is smaller than its cost.
func (v resultTarget) Holds() (files, bytes int64) {
	files, _ = v.actions.files.holds()
	return files, 0
}

// Check implements scrub.Target.
func (v resultTarget) Check(ctx context.Context, name string, _ time.Time, r *scrub.Reader) (scrub.Verdict, error) {
	f := v.actions.files
	k, ok := f.layout.parse(name)
	if !ok {
		return scrub.Passed, nil
	}
	generation, _, ok := f.look(k)
	if !ok {
		return scrub.Passed, nil
	}
	file, wrong, err := f.openWhole(k)
	if err != nil {
		f.log.Warn("cannot open a result of the action cache", zap.String("path", f.path(k)), zap.Error(err))
		return scrub.Passed, nil
	}
	if wrong == "" {
		var content bytes.Buffer
		_, err := r.Copy(ctx, &content, file, nil)
		_ = file.Close()
		if ctx.Err() != nil {
			return scrub.Passed, ctx.Err()
		}
		_, wrong = actionKey{k}.examine(content.Bytes(), err)
	}
	if wrong == "" {
		return scrub.Whole, nil
	}
	f.drop(k, generation, wrong)
	return scrub.Damaged, nil
}
