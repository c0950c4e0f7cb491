package server

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// uploads are the ByteStream uploads in progress, and broken ones that may be resumed. They live in
// memory and in temporary files of the store, whose room they take: a restarted server has none,
// and clients begin again.
type uploads struct {
	store  Receiver
	max    int           // how many idle ones are kept
	maxAge time.Duration // for how long
	now    func() time.Time

	mu      sync.Mutex
	byName  map[wire.Resource]*upload // guarded by mu
	evicted atomic.Int64              // idle ones taken out of byName; changed with mu held
}

// An upload is the received part of one resource. A stream that writes to it holds a turn; a newer
// stream takes the turn away, because the older may hang on a connection that is dead without the
// server knowing.
type upload struct {
	name wire.Resource

	// io serializes access to the file. It is taken before uploads.mu.
	io     sync.Mutex
	writer cas.Writer     // nil before the first byte and after the end
	hasher *digest.Hasher // of the bytes in writer
	ended  bool           // complete or discarded; it takes no more

	holder    *turn     // guarded by uploads.mu; nil when idle
	idleSince time.Time // guarded by uploads.mu
}

// A turn is the right of one stream to write to an upload, until another takes it.
type turn struct {
	all *uploads
	u   *upload
}

// A Receiver is the destination of uploads.
type Receiver interface {
	// Create begins to receive a blob.
	Create(d digest.Digest) (cas.Writer, error)
	// Release undoes the Retain with which Keep leaves a blob.
	Release(d digest.Digest)
	// Fits returns an error if a blob of that size can never be stored.
	Fits(bytes int64) error
}

func newUploads(s Receiver, limit int, maxAge time.Duration) *uploads {
	return &uploads{store: s, max: limit, maxAge: maxAge, now: time.Now, byName: map[wire.Resource]*upload{}}
}

// begin makes the caller the writer of the named upload, from offset. An offset other than the
// committed one is refused, except 0, which starts again. The caller ends the turn with release.
func (a *uploads) begin(name wire.Resource, offset int64) (*turn, error) {
	a.mu.Lock()
	stale := a.expireLocked()
	u := a.byName[name]
	if u == nil {
		u = &upload{name: name, hasher: digest.NewHasher(name.Digest.Function())}
		a.byName[name] = u
	}
	t := &turn{all: a, u: u}
	u.holder = t
	a.mu.Unlock()
	discardAll(stale)
	if err := u.start(offset); err != nil {
		t.release()
		return nil, err
	}
	return t, nil
}

// start checks that the bytes from offset on are due, or makes them so.
func (u *upload) start(offset int64) error {
	u.io.Lock()
	defer u.io.Unlock()
	if u.ended {
		return status.Errorf(codes.Aborted, "upload %s was just completed or given up, ask for its status", u.name)
	}
	switch committed := u.hasher.SizeBytes(); offset {
	case committed:
	case 0:
		u.emptyLocked()
		u.hasher = digest.NewHasher(u.name.Digest.Function())
	default:
		// ABORTED, for it may have given way since the client asked, as Bazel does before it
		// waits to try again: it asks once more then, and fails the build at other codes.
		return status.Errorf(codes.Aborted,
			"upload %s: write_offset is %d but %d bytes are committed", u.name, offset, committed)
	}
	return nil
}

// committed returns how many bytes of the named upload have arrived.
func (a *uploads) committed(name wire.Resource) int64 {
	a.mu.Lock()
	u := a.byName[name]
	a.mu.Unlock()
	if u == nil {
		return 0
	}
	u.io.Lock()
	defer u.io.Unlock()
	if u.ended {
		return 0
	}
	return u.hasher.SizeBytes()
}

// expireLocked takes idle uploads that are too old or too many out of the table
// and returns them, to be discarded when the lock is released.
func (a *uploads) expireLocked() []*upload {
	var stale []*upload
	idle := 0
	for _, u := range a.byName {
		switch {
		case u.holder != nil:
		case a.now().Sub(u.idleSince) >= a.maxAge:
			a.evictLocked(u)
			stale = append(stale, u)
		default:
			idle++
		}
	}
	// One too many at most: this runs whenever one becomes idle.
	if idle > a.max {
		oldest := a.oldestLocked()
		a.evictLocked(oldest)
		stale = append(stale, oldest)
	}
	return stale
}

// oldestLocked returns the upload that is idle for longest, nil if none is.
func (a *uploads) oldestLocked() *upload {
	var oldest *upload
	for _, u := range a.byName {
		if u.holder == nil && (oldest == nil || u.idleSince.Before(oldest.idleSince)) {
			oldest = u
		}
	}
	return oldest
}

// evictLocked takes an idle upload out of the table, to be discarded by the caller. Its room is
// free at once, so that a caller that finds no idle upload any more finds room.
func (a *uploads) evictLocked(u *upload) {
	delete(a.byName, u.name)
	// Without upload.io: no stream has a turn, and none can get one any more.
	if u.writer != nil {
		u.writer.GiveBack()
	}
	a.evicted.Add(1) // last: a caller that has seen this finds the room
}

// givingWay repeats op, which writes to the store, as long as there is no room for it and an idle
// upload can be discarded, the oldest first. The caller holds no upload.io.
func (a *uploads) givingWay(op func() error) error {
	for {
		seen := a.evicted.Load()
		err := op()
		if !errors.Is(err, cas.ErrNoSpace) || !a.giveWay(seen) {
			return err
		}
	}
}

// giveWay discards the oldest idle upload, unless others were evicted since the caller read seen.
// It reports whether any was discarded.
func (a *uploads) giveWay(seen int64) bool {
	var stale []*upload
	a.mu.Lock()
	gone := a.evicted.Load() != seen
	if oldest := a.oldestLocked(); !gone && oldest != nil {
		a.evictLocked(oldest)
		stale = append(stale, oldest)
	}
	a.mu.Unlock()
	discardAll(stale)
	return gone || len(stale) > 0
}

// release ends a turn, if it has not been taken away. An unfinished upload stays to be resumed.
func (t *turn) release() {
	a := t.all
	a.mu.Lock()
	if t.u.holder != t {
		a.mu.Unlock()
		return
	}
	t.u.holder, t.u.idleSince = nil, a.now()
	stale := a.expireLocked()
	a.mu.Unlock()
	discardAll(stale)
}

// holdsLocked fails when the turn was taken away. upload.io is held.
func (t *turn) holdsLocked() error {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.u.holder != t || t.u.ended {
		return status.Errorf(codes.Aborted, "upload %s continues in another stream", t.u.name)
	}
	return nil
}

// Write appends p, and discards idle uploads for it. More bytes than the digest has are ErrCorrupt.
// After an error the upload can continue behind the written bytes.
func (t *turn) Write(p []byte) (int, error) {
	done := 0
	err := t.all.givingWay(func() error {
		n, err := t.write(p[done:])
		done += n
		return err
	})
	return done, err
}

func (t *turn) write(p []byte) (int, error) {
	u := t.u
	u.io.Lock()
	defer u.io.Unlock()
	if err := t.holdsLocked(); err != nil {
		return 0, err
	}
	if int64(len(p)) > u.name.Digest.SizeBytes()-u.hasher.SizeBytes() {
		return 0, fmt.Errorf("upload %s: %w: more bytes than its size", u.name, cas.ErrCorrupt)
	}
	if u.writer == nil {
		w, err := t.all.store.Create(u.name.Digest)
		if err != nil {
			return 0, fmt.Errorf("upload %s: %w", u.name, err)
		}
		u.writer = w
	}
	n, err := u.writer.Write(p)
	_, _ = u.hasher.Write(p[:n]) // never fails
	if err != nil {
		return n, fmt.Errorf("upload %s: %w", u.name, err)
	}
	return n, nil
}

// finish verifies the upload and makes it a blob. In any case, the upload is over.
func (t *turn) finish(ctx context.Context, blobs cas.Content) error {
	u := t.u
	u.io.Lock()
	defer u.io.Unlock()
	if err := t.holdsLocked(); err != nil {
		return err
	}
	defer t.all.remove(u)
	err := u.verifyLocked()
	if err == nil {
		err = blobs.Arriving(ctx, u.name.Digest)
	}
	if err == nil {
		// It has reserved its room, and needs no more.
		err = u.writer.Keep(ctx)
	}
	if err != nil {
		u.discardLocked()
		return fmt.Errorf("upload %s: %w", u.name, err)
	}
	u.writer, u.ended = nil, true
	err = blobs.Gained(u.name.Digest)
	t.all.store.Release(u.name.Digest)
	return err
}

// verifyLocked fails unless the file holds just the bytes that the digest names.
func (u *upload) verifyLocked() error {
	want, got := u.name.Digest, u.hasher.Digest()
	switch {
	case got.SizeBytes() != want.SizeBytes():
		return fmt.Errorf("%w: finished after %d bytes", cas.ErrCorrupt, got.SizeBytes())
	case got != want:
		return fmt.Errorf("%w: its hash is %s", cas.ErrCorrupt, got.Hash())
	case u.writer == nil:
		return fmt.Errorf("%w: the empty blob needs no upload", cas.ErrCorrupt)
	}
	return nil
}

// abandon gives the upload up, if the turn was not taken away.
func (t *turn) abandon() {
	t.u.io.Lock()
	defer t.u.io.Unlock()
	if t.holdsLocked() == nil {
		t.u.discardLocked()
		t.all.remove(t.u)
	}
}

func (a *uploads) remove(u *upload) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byName[u.name] == u {
		delete(a.byName, u.name)
	}
}

// discardAll ends uploads that were taken out of the table.
func discardAll(stale []*upload) {
	for _, u := range stale {
		u.io.Lock()
		u.discardLocked()
		u.io.Unlock()
	}
}

// discardLocked ends the upload and removes its file.
func (u *upload) discardLocked() {
	u.ended = true
	u.emptyLocked()
}

// emptyLocked removes the file.
func (u *upload) emptyLocked() {
	if u.writer != nil {
		u.writer.Drop()
		u.writer = nil
	}
}
