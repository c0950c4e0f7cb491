package cas

import (
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// uploads are the ByteStream uploads that are going on, and those that broke off
// and may be resumed. They live in memory and in temporary files: a server that
// is started again knows none, and clients begin anew.
type uploads struct {
	dir    string
	max    int           // how many idle ones are kept
	maxAge time.Duration // for how long
	now    func() time.Time

	mu     sync.Mutex
	byName map[resource]*upload // guarded by mu
}

// An upload is what has arrived of one resource. A stream that writes to it holds
// a turn; a newer stream takes the turn away, because the older may hang on a
// connection that is dead without the server knowing.
type upload struct {
	name resource

	// io serializes what is done with the file. It is taken before uploads.mu.
	io     sync.Mutex
	file   *os.File       // nil before the first byte and after the end
	hasher *digest.Hasher // of the bytes in file
	ended  bool           // complete or discarded; it takes no more

	holder    *turn     // guarded by uploads.mu; nil when idle
	idleSince time.Time // guarded by uploads.mu
}

// A turn is the right of one stream to write to an upload, until another takes it.
type turn struct {
	all *uploads
	u   *upload
}

func newUploads(dir string, limit int, maxAge time.Duration) *uploads {
	return &uploads{dir: dir, max: limit, maxAge: maxAge, now: time.Now, byName: map[resource]*upload{}}
}

// begin makes the caller the one who writes to the named upload, from offset. An
// offset other than what is committed is refused, except 0, which starts anew.
// The caller ends the turn with release.
func (a *uploads) begin(name resource, offset int64) (*turn, error) {
	a.mu.Lock()
	stale := a.expireLocked()
	u := a.byName[name]
	if u == nil {
		u = &upload{name: name, hasher: digest.NewHasher(name.digest.Function())}
		a.byName[name] = u
	}
	t := &turn{all: a, u: u}
	u.holder = t
	a.mu.Unlock()
	for _, u := range stale {
		u.discard()
	}

	u.io.Lock()
	defer u.io.Unlock()
	if u.ended {
		return nil, status.Errorf(codes.Aborted, "upload %s was just completed or given up, ask for its status", name)
	}
	switch committed := u.hasher.SizeBytes(); offset {
	case committed:
	case 0:
		// The bytes in the file are overwritten from the start.
		u.hasher = digest.NewHasher(name.digest.Function())
	default:
		t.release()
		return nil, status.Errorf(codes.InvalidArgument,
			"upload %s: write_offset is %d but %d bytes are committed", name, offset, committed)
	}
	return t, nil
}

// committed returns how many bytes of the named upload have arrived.
func (a *uploads) committed(name resource) int64 {
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
	var idle int
	var stale []*upload
	var oldest *upload
	for name, u := range a.byName {
		if u.holder != nil {
			continue
		}
		if a.now().Sub(u.idleSince) >= a.maxAge {
			delete(a.byName, name)
			stale = append(stale, u)
			continue
		}
		if idle++; oldest == nil || u.idleSince.Before(oldest.idleSince) {
			oldest = u
		}
	}
	// One too many at most: this runs whenever one becomes idle.
	if idle > a.max {
		delete(a.byName, oldest.name)
		stale = append(stale, oldest)
	}
	return stale
}

// release ends a turn, if it has not been taken away. An upload that is not
// ended stays to be resumed.
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
	for _, u := range stale {
		u.discard()
	}
}

// holdsLocked fails when the turn was taken away. upload.io is held.
func (t *turn) holdsLocked() error {
	t.all.mu.Lock()
	defer t.all.mu.Unlock()
	if t.u.holder != t || t.u.ended {
		return status.Errorf(codes.Aborted, "upload %s goes on in another stream", t.u.name)
	}
	return nil
}

// Write appends p. More bytes than the digest says are ErrCorrupt.
func (t *turn) Write(p []byte) (int, error) {
	u := t.u
	u.io.Lock()
	defer u.io.Unlock()
	if err := t.holdsLocked(); err != nil {
		return 0, err
	}
	at := u.hasher.SizeBytes()
	if int64(len(p)) > u.name.digest.SizeBytes()-at {
		return 0, fmt.Errorf("upload %s: %w: more bytes than its size", u.name, ErrCorrupt)
	}
	if u.file == nil {
		f, err := os.CreateTemp(t.all.dir, "upload-*")
		if err != nil {
			return 0, fmt.Errorf("upload %s: %w", u.name, err)
		}
		u.file = f
	}
	// Hashed only when all of p is written, so that after a full disk the upload
	// can go on where the hash ends.
	if n, err := u.file.WriteAt(p, at); err != nil {
		return n, fmt.Errorf("upload %s: %w", u.name, err)
	}
	return u.hasher.Write(p)
}

// finish verifies the upload and hands its file to adopt. Whatever comes out, the
// upload is over.
func (t *turn) finish(adopt func(path string) error) error {
	u := t.u
	u.io.Lock()
	defer u.io.Unlock()
	if err := t.holdsLocked(); err != nil {
		return err
	}
	defer t.all.remove(u)
	if err := u.verifyLocked(); err != nil {
		u.discardLocked()
		return fmt.Errorf("upload %s: %w", u.name, err)
	}
	// Closed before it becomes a blob: a file that is open for writing cannot be
	// executed (ETXTBSY).
	path := u.file.Name()
	err := u.file.Close()
	u.file, u.ended = nil, true
	if err == nil {
		err = adopt(path)
	}
	if err != nil {
		_ = os.Remove(path)
		return fmt.Errorf("upload %s: %w", u.name, err)
	}
	return nil
}

// verifyLocked fails unless the file holds just the bytes that the digest names.
func (u *upload) verifyLocked() error {
	want, got := u.name.digest, u.hasher.Digest()
	switch {
	case got.SizeBytes() != want.SizeBytes():
		return fmt.Errorf("%w: finished after %d bytes", ErrCorrupt, got.SizeBytes())
	case got != want:
		return fmt.Errorf("%w: its hash is %s", ErrCorrupt, got.Hash())
	case u.file == nil:
		return fmt.Errorf("%w: the empty blob needs no upload", ErrCorrupt)
	}
	// A file that was started anew never holds more than the size: every byte
	// written before was within it.
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

func (u *upload) discard() {
	u.io.Lock()
	defer u.io.Unlock()
	u.discardLocked()
}

// discardLocked ends the upload and removes its file.
func (u *upload) discardLocked() {
	u.ended = true
	if u.file == nil {
		return
	}
	_ = u.file.Close()
	_ = os.Remove(u.file.Name())
	u.file = nil
}
