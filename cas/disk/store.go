package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk/aside"
)

// Options are what may be chosen about a Store. The zero value works.
type Options struct {
	// MaxBytes bounds the sum of the sizes of the blobs, those being written
	// included. On disk each takes up to one block of the file system more.
	// 0 is FreePercent of what is free when the store is opened and what it then
	// holds.
	MaxBytes int64
	// FreePercent is used when MaxBytes is 0; 0 is 80.
	FreePercent int
	// VerifyEvery is how long a Vouching relies on a verification of a blob, if nothing
	// changed its file meanwhile. 0 is 24 h; with less than 0 each blob is verified after
	// each use.
	VerifyEvery time.Duration
	// Isolate has the store remember which instance names have which blobs. A Server of it shows each only its own.
	Isolate bool
	// Logger may be nil.
	Logger *zap.Logger
	// Metrics is where what Stats tells is registered. Nil: nowhere.
	Metrics prometheus.Registerer
}

func (o *Options) validate() error {
	if o.FreePercent < 0 || o.FreePercent > 100 {
		return fmt.Errorf("a store cannot have %d %% of what is free", o.FreePercent)
	}
	if o.FreePercent == 0 {
		o.FreePercent = 80
	}
	if o.MaxBytes < 0 {
		return fmt.Errorf("a store cannot have %d bytes", o.MaxBytes)
	}
	if o.VerifyEvery == 0 {
		o.VerifyEvery = 24 * time.Hour
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return nil
}

// A Store keeps blobs as files of one folder, bounded in bytes. The blob unused
// for longest goes first; a pinned one does not go. Its methods may be called
// concurrently.
//
// A blob is the file <function>/<first two digits>/<hash>-<size>, not writable.
// Nothing is synced to disk: a blob appears by a rename when it is whole, and one
// that a loss of power cut short is known by its size and dropped, at the start
// or when it is opened. Of one that it left with holes the size is right: where the
// machine was started anew, the first Open hashes what was written in the last
// minutes before. What changes later on is noticed when a blob is read whole, and by a
// Vouching. The order of use survives a restart in the modification times of
// the files, to the hour.
type Store struct {
	files      *blobs
	buffers    *buffers
	verifier   *Verifier
	aside      *aside.Folder
	notes      *notes
	possession *possession // nil: all blobs are everybody's
}

// Stats says what a Store holds.
type Stats struct {
	Bytes    int64 // the sum of the sizes of the blobs
	Blobs    int64
	MaxBytes int64
	// PinnedBytes is what cannot be evicted, and ReservedBytes what is set aside for what comes.
	PinnedBytes, ReservedBytes int64
	// The rest counts since the store was opened: what had to go; what was looked for and
	// was there, or was not.
	EvictedBlobs, EvictedBytes int64
	Hits, Misses               int64
	// What was read and hashed again after it had been stored, and what of that was wrong.
	VerifiedBlobs, VerifiedBytes int64
	DamagedBlobs                 int64
	// What is kept aside of damaged blobs, now.
	AsideBlobs, AsideBytes int64
}

// asideShare: what is kept aside has at most one in 100 bytes of the store's bound, and is beside it.
const asideShare = 100

// Open opens the store in dir, which it creates if needed and keeps locked
// until Close: a second Open of the same folder fails, also from another
// process. It removes half-written blobs, what is in TempDir, and what exceeds
// the bound.
func Open(dir string, o Options) (*Store, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	f, err := openFiles(dir, blobLayout(), o.Logger)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	s := &Store{files: &blobs{files: f}, buffers: newBuffers()}
	s.verifier = &Verifier{files: s.files, checks: newChecker(s.files, s.buffers), every: o.VerifyEvery}
	f.index.fresh = s.verifier.fresh
	s.notes = &notes{files: f, path: filepath.Join(f.Dir, notesName), log: o.Logger}
	err = s.prepare(o)
	if err == nil {
		s.aside = aside.Open(filepath.Join(f.Dir, "aside"), f.index.max/asideShare, o.Logger)
		f.setAside = s.aside.Take
	}
	if err == nil && o.Isolate {
		s.possession, err = openPossession(f, o.Logger)
	}
	if err == nil && o.Metrics != nil {
		err = o.Metrics.Register(newStoreMetrics(s))
	}
	if err != nil {
		s.possession.close()
		_ = f.close()
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	s.notes.start()
	return s, nil
}

// prepare sets the bound and makes the empty blob.
func (s *Store) prepare(o Options) error {
	maxBytes := o.MaxBytes
	if maxBytes == 0 {
		free, err := s.files.Free()
		if err != nil {
			return err
		}
		maxBytes = s.files.index.present + free/100*int64(o.FreePercent)
	}
	s.files.limit(maxBytes)
	if err := s.files.mendEmpty(); err != nil && !errors.Is(err, cas.ErrCorrupt) {
		return err
	}
	return nil
}

// Close lets another process open the store. Afterwards nothing is found and nothing can be put.
func (s *Store) Close() error {
	s.verifier.checks.close()
	s.notes.close()
	s.possession.close()
	return s.files.close()
}

// Verifier returns who knows which blobs are vouched for.
func (s *Store) Verifier() *Verifier { return s.verifier }

// Dir returns the absolute path of the store's folder.
func (s *Store) Dir() string { return s.files.Dir }

// TempDir returns a folder on the same file system as the blobs, for files to be
// adopted. Open empties it; names starting with "incoming-" are the store's.
func (s *Store) TempDir() string { return s.files.TempDir() }

// OpenBlob opens d for reading, which counts as a use; the caller closes it. The
// file stays Readable when the blob is evicted. Of a blob that is not there, or
// whose file turns out to be damaged, the error is a *MissingError.
func (s *Store) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open blob %s: %w", d, err)
	}
	return s.files.openBlob(d)
}

// Contains reports whether d is there, which counts as a use.
func (s *Store) Contains(d digest.Digest) bool { return s.files.used(d) }

// FindMissing returns those of ds that are not there, in their order; the others
// count as used.
func (s *Store) FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("find missing blobs: %w", err)
	}
	return s.files.useAll(ds), nil
}

// Pin keeps d from being evicted until unpin is called; calling that again does
// nothing. ok is false when d is not there.
func (s *Store) Pin(d digest.Digest) (unpin func(), ok bool) {
	if !s.files.pin(d) {
		return func() {}, false
	}
	return sync.OnceFunc(func() { s.files.unpin(d) }), true
}

// Retain keeps d from being evicted until Release is called as often as it returned true.
func (s *Store) Retain(d digest.Digest) bool { return s.files.pin(d) }

// Release takes one Retain back.
func (s *Store) Release(d digest.Digest) { s.files.unpin(d) }

// Has reports whether d is there, which does not count as a use.
func (s *Store) Has(d digest.Digest) bool { return s.files.contains(d) }

// CopyDamaged notes that a copy of d that others made on this machine, the file at path, has turned out to be damaged.
func (s *Store) CopyDamaged(d digest.Digest, path string) { s.aside.CopyDamaged(d, path) }

// Stats returns what the store holds now. The empty blob is not counted.
func (s *Store) Stats() Stats {
	damaged, asideBlobs, asideBytes := s.aside.Stats()
	s.files.mu.Lock()
	defer s.files.mu.Unlock()
	x := s.files.index
	return Stats{
		Bytes: x.present, Blobs: x.count, MaxBytes: x.max,
		EvictedBlobs: x.evicted, EvictedBytes: x.evictedCost,
		Hits: x.hits, Misses: x.misses,
		PinnedBytes: x.pinned, ReservedBytes: x.reserved,
		VerifiedBlobs: s.verifier.checks.blobs.Load(), VerifiedBytes: s.verifier.checks.bytes.Load(),
		DamagedBlobs: damaged, AsideBlobs: asideBlobs, AsideBytes: asideBytes,
	}
}

// BlobPath returns where below Store.Dir the file of a blob lies while the Store
// has it, with slashes. Others may read the file; it is never changed, and is
// removed when the blob is evicted.
func BlobPath(d digest.Digest) string {
	h := d.Hash()
	return d.Function().String() + "/" + h[:2] + "/" + h + "-" + strconv.FormatInt(d.SizeBytes(), 10)
}

func blobLayout() layout[digest.Digest] {
	l := layout[digest.Digest]{
		path:  BlobPath,
		parse: ParseBlobPath,
		whole: func(d digest.Digest, bytes int64) bool { return bytes == d.SizeBytes() },
		right: func(d digest.Digest, r io.Reader) bool {
			got, err := digest.OfReader(d.Function(), r)
			return err == nil && got == d
		},
		cost: digest.Digest.SizeBytes,
	}
	for _, fn := range digest.Functions() {
		l.groups = append(l.groups, fn.String())
	}
	return l
}

// ParseBlobPath is the inverse of BlobPath.
func ParseBlobPath(path string) (digest.Digest, bool) {
	group, rest, _ := strings.Cut(path, "/")
	shard, name, _ := strings.Cut(rest, "/")
	hash, size, _ := strings.Cut(name, "-")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != size || !strings.HasPrefix(hash, shard) {
		return digest.Digest{}, false
	}
	for _, fn := range digest.Functions() {
		if fn.String() == group {
			d, err := digest.Parse(fn, hash, n)
			return d, err == nil && len(shard) == 2 && !d.IsEmptyBlob()
		}
	}
	return digest.Digest{}, false
}
