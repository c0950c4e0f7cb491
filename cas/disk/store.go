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

// Options are the options of a Store. The zero value works.
type Options struct {
	// MaxBytes limits the total size of the blobs, including incomplete ones. On disk each takes up
	// to one file system block more. 0 is FreePercent of the space that is free when the store is
	// opened, plus the size of its blobs then.
	MaxBytes int64
	// FreePercent is used when MaxBytes is 0; 0 is 80.
	FreePercent int
	// VerifyEvery is how long a Vouching relies on the verification of an unchanged file. 0 is 24
	// h; if it is negative, each blob is verified after each use.
	VerifyEvery time.Duration
	// Isolate makes the store remember which instance names have which blobs. A Server then shows
	// each instance name only its own.
	Isolate bool
	// Spread makes ext4 without a journal place new files far from removed ones, which would slow
	// them down.
	Spread bool
	// MakeFolders makes the folders of SHA-256 blobs at once. Otherwise each is made with its first
	// blob, so that the first few hundred blobs of a new store take several times as long.
	MakeFolders bool
	// Logger may be nil.
	Logger *zap.Logger
	// Metrics is the registry for the values of Stats. Nil: they are not registered.
	Metrics prometheus.Registerer
}

func (o *Options) validate() error {
	if o.FreePercent < 0 || o.FreePercent > 100 {
		return fmt.Errorf("a store cannot have %d %% of the free space", o.FreePercent)
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

// A Store keeps blobs as files of one folder, with a maximum of bytes. It evicts the least recently
// used blob first; it never evicts a pinned one. Its methods may be called concurrently.
//
// A blob is the file <function>/<first two digits>/<hash>-<size>, not writable. Nothing is synced
// to disk: a blob appears by a rename when it is complete. The size shows a blob that a power
// failure cut short, and the store drops it at the start or when it is opened. The size does not
// show holes: after a start of the machine, the first Open hashes files of the last minutes before.
// Reads of a whole blob, and a Vouching, detect later changes. The order of use survives a restart
// in the modification times of the files, to the hour.
type Store struct {
	files      *blobs
	buffers    *buffers
	verifier   *Verifier
	aside      *aside.Folder
	notes      *notes
	possession *possession // nil: every caller sees all blobs
}

// Stats are the contents and counters of a Store.
type Stats struct {
	Bytes    int64 // the sum of the sizes of the blobs
	Blobs    int64
	MaxBytes int64
	// PinnedBytes cannot be evicted; ReservedBytes are reserved for incoming files.
	PinnedBytes, ReservedBytes int64
	// The rest counts events since the store was opened: evictions, and lookups that succeeded or
	// failed.
	EvictedBlobs, EvictedBytes int64
	Hits, Misses               int64
	// Bytes that were read and hashed again after they had been stored, and wrong ones among them.
	VerifiedBlobs, VerifiedBytes int64
	DamagedBlobs                 int64
	// Damaged blobs in the folder aside, now.
	AsideBlobs, AsideBytes int64
}

// asideShare: the folder aside has at most one in 100 bytes of the store's limit, in addition to
// it.
const asideShare = 100

// Open opens the store in dir, which it creates if needed and keeps locked until Close: a second
// Open of the same folder fails, also from another process. It removes half-written blobs,
// everything in TempDir, and blobs above the limit.
func Open(dir string, o Options) (*Store, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	f, err := openFiles(dir, blobLayout(), o.Logger)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	f.spread(o.Spread)
	if o.MakeFolders {
		f.makeShards(digest.SHA256.String())
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

// Close lets another process open the store. Afterwards lookups find nothing and writes fail.
func (s *Store) Close() error {
	s.verifier.checks.close()
	s.notes.close()
	s.possession.close()
	return s.files.close()
}

// Verifier returns the Verifier of the store.
func (s *Store) Verifier() *Verifier { return s.verifier }

// Dir returns the absolute path of the store's folder.
func (s *Store) Dir() string { return s.files.Dir }

// TempDir returns a folder on the same file system as the blobs, for files to be
// adopted. Open empties it; names starting with "incoming-" are the store's.
func (s *Store) TempDir() string { return s.files.TempDir() }

// OpenBlob opens d for reading, and counts it as used; the caller closes it. The file stays
// readable when the blob is evicted. For a missing blob, or one whose file turns out to be damaged,
// the error is a *MissingError.
func (s *Store) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open blob %s: %w", d, err)
	}
	return s.files.openBlob(d)
}

// Contains reports whether d exists, and counts that as a use.
func (s *Store) Contains(d digest.Digest) bool { return s.files.used(d) }

// FindMissing returns the missing ones of ds, in their order, and counts the others as used.
func (s *Store) FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("find missing blobs: %w", err)
	}
	return s.files.useAll(ds), nil
}

// Pin prevents the eviction of d until unpin is called; further calls of unpin do nothing. ok is
// false if d does not exist.
func (s *Store) Pin(d digest.Digest) (unpin func(), ok bool) {
	if !s.files.pin(d) {
		return func() {}, false
	}
	return sync.OnceFunc(func() { s.files.unpin(d) }), true
}

// Retain prevents the eviction of d until Release has been called as often as Retain returned true.
func (s *Store) Retain(d digest.Digest) bool { return s.files.pin(d) }

// Release undoes one Retain.
func (s *Store) Release(d digest.Digest) { s.files.unpin(d) }

// Has reports whether d exists, without counting that as a use.
func (s *Store) Has(d digest.Digest) bool { return s.files.contains(d) }

// CopyDamaged records that another program's copy of d on this machine, the file at path, is
// damaged.
func (s *Store) CopyDamaged(d digest.Digest, path string) { s.aside.CopyDamaged(d, path) }

// Stats returns the present contents of the store. The empty blob is not counted.
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

// BlobPath returns the path below Store.Dir of a blob's file while the Store has it, with slashes.
// Others may read the file; it never changes, and is removed when the blob is evicted.
func BlobPath(d digest.Digest) string {
	var buffer [128]byte // enough
	b := append(append(buffer[:0], d.Function().String()...), "/00/"...)
	at := len(b)
	b = d.AppendString(b)
	copy(b[at-len("00/"):], b[at:at+2])
	b[at+2*digest.HashSize] = '-' // which AppendString has as a slash
	return string(b)
}

func blobLayout() layout {
	l := layout{
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
