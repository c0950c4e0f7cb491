package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// A ReadThrough is a Store that fetches missing blobs from upstream. A blob is fetched once for all
// concurrent callers, through this ReadThrough or another one of the same Store. The fetch is
// cancelled when the last caller has left. A failed fetch is not remembered; if it was another
// ReadThrough's, this one tries its own upstream. Methods may be called concurrently.
//
// Small blobs that are requested one by one are gathered: while maxGathering calls of Fetch for
// such blobs are in flight, further ones wait, and the next call takes them all, or as many as one
// message holds. Blobs of Load and large ones do not wait.
//
// Blobs of Prefetch go behind all that: see there.
type ReadThrough struct {
	*shared
	upstream cas.Fetcher
	behind   cas.Fetcher // upstream, for prefetches
	direct   cas.Fetcher // upstream without peers, for blobs that they do not keep
	own      fetched

	// Guarded by flights.mu.
	queue     []*flight           // small blobs to be gathered; take alone decides the order
	gathering int                 // goroutines that fetch queued blobs
	backlogs  [queueKinds]backlog // blobs of Prefetch
	yielding  yielding
}

// Through returns a view of the store that fetches missing blobs from f. It needs no closing, and
// is cheap enough for one per action.
func (x *Group) Through(f cas.Fetcher) *ReadThrough {
	t := &ReadThrough{shared: x.shared, upstream: f, behind: f, direct: f}
	if n, ok := f.(cas.DirectFetcher); ok {
		t.direct = n.Direct()
	}
	if p, ok := f.(cas.PatientFetcher); ok {
		t.behind = p.Behind()
	}
	return t
}

// Fetched returns how many blobs and bytes this ReadThrough fetched from upstream. A blob whose
// fetch another ReadThrough had started counts there.
func (t *ReadThrough) Fetched() (blobs, bytes int64) {
	return t.own.blobs.Load(), t.own.bytes.Load()
}

// fetched counts blobs from upstream.
type fetched struct{ blobs, bytes atomic.Int64 }

func (f *fetched) add(d digest.Digest) {
	f.blobs.Add(1)
	f.bytes.Add(d.SizeBytes())
}

// countFetched counts d as fetched by t.
func (t *ReadThrough) countFetched(d digest.Digest) {
	t.own.add(d)
	t.fetched.add(d)
}

// Load makes ds local, with one call of Fetch for all that have no flight yet. A *MissingError
// names all that upstream does not have. The blobs may be evicted after Load has returned; the
// caller may pin them.
func (t *ReadThrough) Load(ctx context.Context, ds []digest.Digest) error {
	if _, err := t.store.FindMissing(ctx, ds); err != nil { // which counts as a use
		return err
	}
	h, err := t.hold(ctx, ds)
	if err != nil {
		return err
	}
	h.release()
	return nil
}

// OpenBlob opens d for reading, as Store.OpenBlob does. If d is not local, it fetches d first.
func (t *ReadThrough) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	file, _, err := t.OpenWhole(ctx, d)
	return file, err
}

// OpenLocal is OpenBlob if d is in the store. It waits only for the disk; ok is false for every error.
func (t *ReadThrough) OpenLocal(ctx context.Context, d digest.Digest) (file *os.File, ok bool) {
	file, err := t.store.OpenBlob(ctx, d)
	return file, err == nil
}

// OpenWhole does the same as OpenBlob, and also returns where the blob was, even with an error.
func (t *ReadThrough) OpenWhole(ctx context.Context, d digest.Digest) (*os.File, cas.Presence, error) {
	if file, err := t.store.OpenBlob(ctx, d); !errors.Is(err, cas.ErrNotFound) {
		return file, cas.Local, err
	}
	h, err := t.hold(ctx, []digest.Digest{d})
	if err != nil {
		return nil, h.was, err
	}
	defer h.release()
	file, err := t.store.OpenBlob(ctx, d)
	return file, h.was, err
}

// ReadBlob returns the bytes of d. If d is not local, it fetches d first.
func (t *ReadThrough) ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error) {
	if b, err := t.store.ReadBlob(ctx, d); !errors.Is(err, cas.ErrNotFound) {
		return b, err
	}
	h, err := t.hold(ctx, []digest.Digest{d})
	if err != nil {
		return nil, err
	}
	defer h.release()
	return t.store.ReadBlob(ctx, d)
}

// smallMessage is the size up to which ReadMessage keeps a message in memory.
const smallMessage = 64 << 10

// ReadMessage returns the bytes of d as ReadBlob does, for a message that is rarely read twice,
// such as a Command. A small message that is not in the store is kept in memory for a while instead
// of in the store. The caller must not change it.
func (t *ReadThrough) ReadMessage(ctx context.Context, d digest.Digest) ([]byte, error) {
	if d.SizeBytes() > smallMessage {
		return t.ReadBlob(ctx, d)
	}
	if m, ok := t.messages.Get(d); ok {
		return m, nil
	}
	if b, err := t.store.ReadBlob(ctx, d); !errors.Is(err, cas.ErrNotFound) {
		return b, err
	}
	m, came := message(nil), false
	err := t.direct.Fetch(ctx, []digest.Digest{d}, func(_ digest.Digest, r io.Reader) (err error) {
		if m, err = io.ReadAll(io.LimitReader(r, smallMessage+1)); err == nil && digest.Of(d.Function(), m) != d {
			err = fmt.Errorf("read message %s: %w", d, cas.ErrCorrupt)
		}
		came = err == nil
		return err
	})
	if err == nil && !came {
		err = &cas.MissingError{Digests: []digest.Digest{d}}
	}
	if err != nil {
		return nil, err
	}
	t.countFetched(d)
	return t.messages.Add(d, m, int64(len(m))), nil
}

// message is a value of ReadMessage's cache.
type message []byte

// Directory returns the blob d as a Directory. It is cached for the next caller, within
// Options.DirectoryCacheBytes. If the blob is no valid directory, the error wraps tree.ErrInvalid.
func (t *ReadThrough) Directory(ctx context.Context, d digest.Digest) (*tree.Directory, error) {
	if p, ok := t.directories.Get(d); ok {
		return p.dir, p.err
	}
	if d.SizeBytes() > tree.MaxBytes {
		return nil, fmt.Errorf("read directory %s: %w: it is larger than %d bytes",
			d, tree.ErrInvalid, tree.MaxBytes)
	}
	w, leave := t.trees.await(d)
	defer leave()
	if p, ok := t.directories.Get(d); ok { // the tree has come
		return p.dir, p.err
	}
	if w == nil {
		return t.readDirectory(ctx, d)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	read := make(chan parsed, 1)
	go func() {
		dir, err := t.readDirectory(ctx, d)
		read <- parsed{dir, err}
	}()
	select {
	case p := <-read:
		return p.dir, p.err
	case <-w.came:
		cancel()
		<-read
		return w.dir, w.err
	}
}

func (t *ReadThrough) readDirectory(ctx context.Context, d digest.Digest) (*tree.Directory, error) {
	b, err := t.ReadBlob(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("read directory %s: %w", d, err)
	}
	return t.keepDirectory(d, b)
}

// parsed is a Directory, or why there is none: an invalid one can be large, and looked at often.
type parsed struct {
	dir *tree.Directory
	err error
}

// keepDirectory makes a Directory of the bytes of d, and caches it.
func (x *shared) keepDirectory(d digest.Digest, b []byte) (*tree.Directory, error) {
	dir, err := tree.Parse(d.Function(), b)
	if err != nil {
		err = fmt.Errorf("read directory %s: %w", d, err)
		x.directories.Add(d, parsed{err: err}, int64(len(err.Error())))
		return nil, err
	}
	return x.directories.Add(d, parsed{dir: dir}, int64(dir.Bytes())).dir, nil
}

// LocalDirectory is Directory if the message is in memory or in the store. It waits only for the
// disk.
func (t *ReadThrough) LocalDirectory(d digest.Digest) (*tree.Directory, bool) {
	if p, ok := t.directories.Get(d); ok {
		return p.dir, p.err == nil
	}
	if d.SizeBytes() > tree.MaxBytes {
		return nil, false
	}
	b, ok := t.store.ReadLocal(d)
	if !ok {
		return nil, false
	}
	dir, err := t.keepDirectory(d, b)
	return dir, err == nil // otherwise Directory will return the error
}

// LocalBlob returns the bytes of d if it is in the store, and right. It waits only for the disk.
func (t *ReadThrough) LocalBlob(d digest.Digest) ([]byte, bool) { return t.store.ReadLocal(d) }

// hold makes ds local, which the caller has counted as used, and keeps them pinned
// until they are released. After an error nothing is pinned.
func (t *ReadThrough) hold(ctx context.Context, ds []digest.Digest) (*holding, error) {
	h := &holding{store: t.store}
	for need := digest.Distinct(ds); len(need) > 0; {
		absent := h.pin(need)
		asked, err := t.ask(ctx, absent)
		if h.was == cas.Local { // else it is asked for again, as it did not come
			h.was = asked.was
		}
		if err == nil {
			need, err = t.await(ctx, asked.flights, h)
		}
		if err != nil {
			h.release()
			return h, fmt.Errorf("fetch %d blobs: %w", len(absent), err)
		}
		need = append(need, asked.present...)
	}
	if err := h.err(); err != nil {
		h.release()
		return h, err
	}
	return h, nil
}

// await waits for the end of all flights and leaves them. h pins the fetched blobs. It returns the
// blobs that another ReadThrough or a Prefetch failed to fetch, which must be tried again.
func (t *ReadThrough) await(ctx context.Context, flights []*flight, h *holding) (again []digest.Digest, err error) {
	for _, fl := range flights {
		if err == nil {
			select {
			case <-fl.done:
				again = append(again, h.land(t, fl)...)
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		}
		t.leave(fl)
	}
	return again, err
}

// A holding has the blobs that one caller has got so far, and those that failed. It belongs to that
// caller's goroutine.
type holding struct {
	store   Store
	pinned  []digest.Digest
	missing []digest.Digest
	failure error        // the first other than missing
	was     cas.Presence // of the least present
}

// pin pins the present blobs and returns the rest.
func (h *holding) pin(ds []digest.Digest) (absent []digest.Digest) {
	for _, d := range ds {
		if h.store.Retain(d) {
			h.pinned = append(h.pinned, d)
		} else {
			absent = append(absent, d)
		}
	}
	return absent
}

// land takes over the blob of fl, which has ended. It returns the digest if t must try again.
func (h *holding) land(t *ReadThrough, fl *flight) (again []digest.Digest) {
	switch {
	case fl.err == nil:
		// The flight's own pin keeps it until the last asker has left; it is
		// absent all the same when its file was found damaged.
		return h.pin([]digest.Digest{fl.digest})
	case fl.by != t, fl.behind:
		return []digest.Digest{fl.digest}
	case errors.Is(fl.err, cas.ErrNotFound):
		h.missing = append(h.missing, fl.digest)
	case h.failure == nil:
		h.failure = fl.err
	}
	return nil
}

// err is nil when nothing failed. That something is missing comes last: the list
// is whole only when nothing else went wrong.
func (h *holding) err() error {
	if h.failure != nil {
		return h.failure
	}
	if len(h.missing) > 0 {
		return &cas.MissingError{Digests: h.missing}
	}
	return nil
}

func (h *holding) release() {
	for _, d := range h.pinned {
		h.store.Release(d)
	}
}
