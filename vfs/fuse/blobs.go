package fuse

import (
	"os"
	"sync"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// maxIdleBackings is how many backing ids that no file uses a root keeps, in
// case the blob is opened again.
const maxIdleBackings = 4096

// blob is a file that the kernel reads by its backing id, or this process by
// its descriptor. While a file of the FUSE mount is open with one backing id
// the kernel accepts no other for it, so there is one blob for each digest. A
// blob on its way is one for each node that has it open.
type blob struct {
	digest   digest.Digest
	file     *os.File  // nil with passthrough: the kernel holds the file
	id       int32     // backing id, if file and arriving are nil
	arriving *arriving // set if it is on its way, or was when node opened it
	node     uint64    // set with arriving

	users int // guarded by blobTable.mu
}

// blobTable holds the blobs of a root that are open.
type blobTable struct {
	// unregister gives a backing id back to the kernel.
	unregister func(id int32)

	mu         sync.Mutex
	byDigest   map[digest.Digest]*blob
	arriving   map[digest.Digest]*arriving
	byHandle   map[uint64]*blob // open files, by the handle that the kernel has
	lastHandle uint64
	idle       *bounded.Latest[digest.Digest, *blob] // those without users whose ids are kept
}

func (t *blobTable) init() {
	t.byDigest = map[digest.Digest]*blob{}
	t.arriving = map[digest.Digest]*arriving{}
	t.byHandle = map[uint64]*blob{}
	t.idle = bounded.NewLatest[digest.Digest, *blob](maxIdleBackings)
}

// use returns the blob as node may open it, and counts a user, or nil if it is
// not open.
func (t *blobTable) use(d digest.Digest, node uint64) *blob {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.useLocked(d, node)
}

func (t *blobTable) useLocked(d digest.Digest, node uint64) *blob {
	ar, b := t.arriving[d], t.byDigest[d]
	if ar != nil && (ar.opened[node] != nil || b == nil && !ar.whole) {
		return ar.useLocked(node)
	}
	if b == nil {
		return nil
	}
	if b.users == 0 {
		t.idle.Remove(d)
	}
	b.users++
	return b
}

// add makes a blob of file, which it owns from then on, for node, and counts a
// user. If another access was faster, it returns that one's.
func (t *blobTable) add(
	d digest.Digest, node uint64, file *os.File, register func(*os.File) (int32, bool),
) *blob {
	b := &blob{digest: d, file: file, users: 1}
	if id, ok := register(file); ok {
		_ = file.Close()
		b.file, b.id = nil, id
	}
	t.mu.Lock()
	won := t.useLocked(d, node)
	if won == nil {
		t.byDigest[d] = b
	}
	t.mu.Unlock()
	if won != nil {
		t.drop(b)
		return won
	}
	return b
}

// handle gives a user of b a number.
func (t *blobTable) handle(b *blob) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lastHandle++
	t.byHandle[t.lastHandle] = b
	return t.lastHandle
}

// at returns the blob of an open handle, nil if there is none.
func (t *blobTable) at(handle uint64) *blob {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byHandle[handle]
}

// release ends the use by handle.
func (t *blobTable) release(handle uint64) {
	t.mu.Lock()
	b := t.byHandle[handle]
	delete(t.byHandle, handle)
	t.mu.Unlock()
	if b != nil {
		t.leave(b)
	}
}

// leave ends one use of b. A descriptor is closed after its last use, a backing
// id is kept while there is room.
func (t *blobTable) leave(b *blob) {
	t.mu.Lock()
	b.users--
	var out *blob
	switch {
	case b.users > 0:
	case b.arriving != nil:
		delete(b.arriving.opened, b.node)
		if t.unusedLocked(b.arriving) {
			out = b
		}
	case b.file != nil:
		delete(t.byDigest, b.digest)
		out = b
	default:
		if t.idle.Len() == maxIdleBackings {
			_, out, _ = t.idle.Oldest()
			t.idle.Remove(out.digest)
			delete(t.byDigest, out.digest)
		}
		t.idle.Put(b.digest, b)
	}
	t.mu.Unlock()
	if out != nil {
		t.drop(out)
	}
}

func (t *blobTable) drop(b *blob) {
	switch {
	case b.arriving != nil:
		b.arriving.data.Close()
	case b.file != nil:
		_ = b.file.Close()
	default:
		t.unregister(b.id)
	}
}

// closeFiles closes the descriptors and arrivals that are left. The backing ids
// ended with the connection.
func (t *blobTable) closeFiles() {
	t.mu.Lock()
	whole, arriving := t.byDigest, t.arriving
	t.init()
	t.mu.Unlock()
	for _, b := range whole {
		if b.file != nil {
			_ = b.file.Close()
		}
	}
	for _, ar := range arriving {
		ar.data.Close()
	}
}
