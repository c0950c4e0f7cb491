package link

import (
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

const (
	// minKeptEntries is the smallest subtree that is worth a layer of its own.
	minKeptEntries = 256
	// maxKept and maxKeptEntries bound the subtrees that are kept, in use or not.
	maxKept        = 64
	maxKeptEntries = 1 << 20
	// maxKeptLayers bounds the subtrees that one root shows or makes: each is a layer of its
	// overlay.
	maxKeptLayers = 8
	// maxSeen bounds the subtrees that are remembered to have been seen.
	maxSeen = 1 << 18
)

// keptTrees are linked subtrees that recur: folders with a subtree at its path, as layers for the
// overlays of all roots that have it there. An overlay does not write to its lower layers; if they
// change nevertheless, that is detected when a root is verified and before the next use, and the
// tree is dropped. A subtree is kept when it is seen for the second time.
type keptTrees struct {
	dir   string
	links *copies
	trash *folder.Trash
	log   *zap.Logger

	mu      sync.Mutex // guards the following; no I/O under it
	serial  int
	clock   uint64
	byKey   map[keptKey]*keptTree // a nil one is being made
	seen    map[keptKey]struct{}
	entries int // of all
	// held has the copies that trees lead to, each to its own: so one root can show several.
	held map[fileKey]*keptTree
}

// keptKey identifies a kept tree.
type keptKey struct {
	path   string // "" for a whole root
	digest digest.Digest
	owner  folder.Owner
}

// keptTree is one kept subtree. It pins the copies that it has links to.
type keptTree struct {
	key     keptKey
	dir     string    // in which the subtree is at its path
	keys    []fileKey // of links, also where there are none yet
	links   []*sharedFile
	names   names
	entries int

	// Guarded by keptTrees.mu.
	users   int
	lastUse uint64
	retired bool // no root gets it any more
	dropped bool // its last user, or the one that retired it, removes it
}

func newKeptTrees(dir string, links *copies, trash *folder.Trash, log *zap.Logger) *keptTrees {
	return &keptTrees{
		dir: dir, links: links, trash: trash, log: log,
		byKey: map[keptKey]*keptTree{}, seen: map[keptKey]struct{}{}, held: map[fileKey]*keptTree{},
	}
}

// look returns the kept tree, with one user more, or tells the caller to make it, and then to call
// add or forget.
func (k *keptTrees) look(key keptKey) (t *keptTree, mine bool) {
	t, mine = k.take(key)
	if t == nil || t.intact() {
		return t, mine
	}
	k.log.Warn("a linked folder that roots share was changed; it is dropped", zap.String("path", key.path))
	k.mu.Lock()
	if mine = !t.retired; mine {
		k.retireLocked(t)
		k.byKey[key] = nil
	}
	k.mu.Unlock()
	k.release([]*keptTree{t})
	return nil, mine
}

func (k *keptTrees) take(key keptKey) (t *keptTree, mine bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, found := k.byKey[key]
	switch _, seen := k.seen[key]; {
	case t != nil:
		k.clock++
		t.lastUse = k.clock
		t.users++
	case found: // another caller makes it
	case seen && len(k.byKey) < maxKept:
		k.byKey[key] = nil
		return nil, true
	case len(k.seen) >= maxSeen:
		clear(k.seen)
		fallthrough
	default:
		k.seen[key] = struct{}{}
	}
	return t, false
}

// newDir returns the name of a folder that does not exist yet.
func (k *keptTrees) newDir() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.serial++
	return filepath.Join(k.dir, strconv.Itoa(k.serial))
}

// hold chooses the copies that t, made by p, will lead to.
func (k *keptTrees) hold(t *keptTree, p *plan) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p.number(func(key fileKey) bool { return k.held[key] != nil })
	for key := range p.files {
		k.held[key] = t
		t.keys = append(t.keys, key)
	}
}

// drop removes t, which has no users, and releases its copies.
func (k *keptTrees) drop(t *keptTree) error {
	k.mu.Lock()
	for _, key := range t.keys {
		delete(k.held, key)
	}
	k.mu.Unlock()
	k.links.release(t.links)
	return k.trash.PutWith(t.dir, k.links.unlink)
}

// add enters a tree that is made, and has one user.
func (k *keptTrees) add(t *keptTree) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.clock++
	t.users, t.lastUse = 1, k.clock
	k.byKey[t.key] = t
	k.entries += t.entries
}

// forget records that a tree could not be made.
func (k *keptTrees) forget(key keptKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.byKey, key)
}

// release removes one user of each of ts, and drops the surplus: the least recently used trees, as
// long as there are too many or the copies that they pin exceed the cache.
func (k *keptTrees) release(ts []*keptTree) {
	k.mu.Lock()
	for _, t := range ts {
		t.users--
	}
	k.mu.Unlock()
	for {
		full := k.links.overfull()
		k.mu.Lock()
		t := k.surplusLocked(full, ts)
		k.mu.Unlock()
		if t == nil {
			return
		}
		if err := k.drop(t); err != nil {
			k.log.Error("cannot remove a linked folder", zap.Error(err))
		}
	}
}

// surplusLocked returns a tree without users that must be dropped: one of ts that is retired, or
// the oldest if there are too many.
func (k *keptTrees) surplusLocked(full bool, ts []*keptTree) (t *keptTree) {
	for _, of := range ts {
		if of.retired && !of.dropped && of.users == 0 {
			t = of
		}
	}
	if t == nil && (full || len(k.byKey) >= maxKept || k.entries > maxKeptEntries) {
		for _, of := range k.byKey {
			if of != nil && of.users == 0 && (t == nil || of.lastUse < t.lastUse) {
				t = of
			}
		}
	}
	if t != nil {
		k.retireLocked(t)
		t.dropped = true
	}
	return t
}

// retireLocked stops new uses of t.
func (k *keptTrees) retireLocked(t *keptTree) {
	if t.retired {
		return
	}
	t.retired = true
	delete(k.byKey, t.key)
	k.entries -= t.entries
}

// intact reports whether the folders are as they were made, and their copies unchanged.
func (t *keptTree) intact() bool {
	return t.names.check() == nil && !slices.ContainsFunc(t.links, func(l *sharedFile) bool { return !l.intact() })
}

// become records the content of t, whose links m has made of d and below.
func (t *keptTree) become(m *maker, d dirAt) error {
	t.names = m.names
	for _, d := range m.dirs {
		t.entries += d.list.Len()
	}
	return t.names.noteAbove(m.base, d.path)
}
