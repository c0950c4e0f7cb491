package vfs

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

// Kind is what an entry of an input root is.
type Kind = tree.Kind

// The kinds of entries.
const (
	Directory = tree.Dir
	File      = tree.File
	Symlink   = tree.Symlink
)

// Look is what somebody wants to know of a path.
type Look = tree.Look

// RootSpec describes the input root of one action.
type RootSpec struct {
	Name   string        // unique among the roots that are open, and a file name
	Digest digest.Digest // of the root Directory; its function is that of the whole tree
	Source Source
	// Owner, if not nil, is whom the root belongs to instead of Options.Owner. Then
	// no metadata image has part in it, unless Options.Namespaces has the owner.
	Owner *Owner
	// OnFirstRead, if not nil, is called once for each path that is read (the
	// package comment says when that is): "" for the root, else "a/b". It may be
	// called concurrently and must not block, nor touch the root. With hard links
	// it is never called.
	OnFirstRead func(path string, k Kind)
	// OnLook, if not nil, is told of all that anybody gets to know of the inputs, before
	// he does: the action and, through Path and Unchanged, the worker. Path is
	// that among the inputs, also of what was moved; the same look may be told again.
	// It is called as OnFirstRead is. The root then shows no metadata images, in which
	// names can be looked up unseen, and each stat(2) after a listing is a lookup.
	OnLook func(path string, l Look)
	// OnBlob, if not nil, is told of each blob whose bytes the action, or the worker through Path
	// and Unchanged, may get from the Source's files: before they do, but of what a metadata
	// image shows soon after, and at the latest when Vouch returns. The same blob may be told
	// again. Copies that hard links lead to are not told: Vouch vouches for them. It is called
	// as OnFirstRead is.
	OnBlob func(d digest.Digest)
	// OnStall, if not nil, is called when no access waits for the Source any
	// longer, with the time since the first of them began: the d of all calls
	// are disjoint and add up to Stalled. It must not block.
	OnStall func(d time.Duration)
}

// Stats says how much of an input root was read, each path once, and how often
// a name was looked up.
type Stats struct {
	DirectoriesRead int64
	FilesRead       int64
	SymlinksRead    int64
	BytesRead       int64 // sizes of the files that were opened

	// Lookups and Absent count the names that the kernel asked for, those that are
	// there and those that are not: for a stat, on the way to something deeper, or
	// before an open. They are not reads. The kernel asks once for each path and
	// remembers the answer until it is short of memory; what it learned from a
	// listing it does not ask for.
	Lookups int64
	Absent  int64
}

// Root is the input root of one action. Its methods may be called concurrently.
type Root struct {
	fs    *FS
	spec  RootSpec
	owner Owner

	// FUSE requests carry no context; this is the one of all accesses. Close cancels it.
	ctx    context.Context
	cancel context.CancelFunc
	loads  sync.WaitGroup // calls of the Source
	stall  stallClock
	blobs  blobTable
	grafts []*graft     // images that have parts of it
	cover  *cover       // what they show; nil if there are none
	closed func() error // release, once
	lower  lowerLayer
	upper  upperLayer
	folder *folder.Folder // all there is of a root without inputs, in layer
	layer  string
	// vacated: nobody is at work in it any more.
	vacated atomic.Bool

	// What mount has done, for release to undo.
	pointMade bool // the mount points' folder is ours
	layerMade bool // so is the folder of the writable layer
	layerUp   bool // which is a file system in memory
	server    *fuse.Server
	served    chan struct{} // closed when the server's goroutines are gone
	pin       int           // descriptor of the FUSE mount, which keeps its number ours; -1 for none
	lowerUp   bool          // lower is mounted
	watched   bool          // by the watcher, as watchID
	watchID   fsid
	blind     atomic.Bool // the watcher does not know all that was opened

	seed maphash.Seed // inode numbers are hashes of the path

	mu     sync.Mutex
	nodes  map[uint64]*node    // by node id, as the kernel knows them
	lastID uint64              // of the newest node; ids are never used again
	seen   map[uint64]struct{} // inode numbers of the paths that were read
	stats  Stats
	err    error // first error of the Source or of a directory
}

// NewRoot makes an input root appear. With FUSE nothing of it is fetched before
// it is asked for; the ctx lends its values to the calls of the Source, and only
// Close ends them. With hard links NewRoot blocks until all of it is fetched, and
// ctx ends that; an error of the Source, or that a Directory is invalid, is
// returned here and not by Root.Err.
func (f *FS) NewRoot(ctx context.Context, spec RootSpec) (*Root, error) {
	r, err := f.newRoot(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("mount input root %q: %w", spec.Name, err)
	}
	return r, nil
}

func (f *FS) newRoot(ctx context.Context, spec RootSpec) (*Root, error) {
	if err := tree.CheckName(spec.Name); err != nil {
		return nil, err
	}
	if spec.Name == trashName || spec.Name == linksName || spec.Name == plainName {
		return nil, fmt.Errorf("name %q is reserved", spec.Name)
	}
	if spec.Source == nil || spec.Digest.IsZero() {
		return nil, errors.New("source and digest must be given")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := f.reserve(spec.Name); err != nil {
		return nil, err
	}
	r := &Root{
		fs: f, spec: spec, owner: f.owner, pin: -1,
		seed:  maphash.MakeSeed(),
		nodes: map[uint64]*node{},
		seen:  map[uint64]struct{}{},
	}
	if spec.Owner != nil {
		r.owner = *spec.Owner
	}
	r.ctx, r.cancel = context.WithCancel(context.WithoutCancel(ctx))
	r.stall.onEnd = spec.OnStall
	r.closed = sync.OnceValue(r.release)
	r.blobs.init()
	r.addGrafts()
	r.addRootNodes()
	r.arrange()
	if err := r.mount(ctx); err != nil {
		return nil, errors.Join(err, r.closed())
	}
	f.keep(r)
	r.vouchAhead()
	return r, nil
}

// Path returns the absolute path of the root that the action sees: the inputs,
// writable. The caller makes the output directories in it.
func (r *Root) Path() string { return r.upper.Path() }

// Intact returns an error that wraps ErrInputChanged and names inputs that were
// changed in place, which is possible only with hard links that have no overlayfs
// above them. It looks at all of them; to be called when the action has ended,
// whose result is then worth nothing.
func (r *Root) Intact() error { return r.upper.intact() }

func (r *Root) pointPath() string { return filepath.Join(r.fs.pointDir, r.spec.Name) }
func (r *Root) lowerPath() string { return filepath.Join(r.pointPath(), "lower") }
func (r *Root) layerPath() string {
	if r.layer != "" {
		return r.layer
	}
	if r.inMemory() {
		return filepath.Join(r.pointPath(), layerName)
	}
	return filepath.Join(r.fs.upperDir, r.spec.Name)
}

func (r *Root) upperPath() string { return filepath.Join(r.layerPath(), "upper") }

// Stalled returns for how long, in wall time, at least one access of this root
// waited for the Source, a wait that is going on included. It never decreases.
func (r *Root) Stalled() time.Duration { return r.stall.total() }

// Err returns the first error that an access met: one of the Source, or that a
// Directory is invalid. Accesses that were given up, because their process was
// killed or the root closed, leave none.
func (r *Root) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Stats returns how much has been read so far. Nobody sees what is read of hard
// links: it is then zero.
func (r *Root) Stats() Stats {
	if r.watched {
		r.fs.watcher.drain()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}

// Vacated says that no process is at work in the root any more, nor ever will be, and that
// none has one of its folders open. What
// the action did not touch of it may then serve another root after Close.
func (r *Root) Vacated() { r.vacated.Store(true) }

// Close unmounts the root and removes all that the action wrote. Files that are
// still open and processes that are still inside lose it, without holding Close
// up. Accesses that wait for the Source are cancelled. Calling it again returns the same error.
func (r *Root) Close() error { return r.closed() }

// fail notes err, met when reading n, unless an earlier one was noted.
func (r *Root) fail(n *node, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return
	}
	p := n.pathLocked()
	switch {
	case n.area == blobArea:
		r.err = fmt.Errorf("read blob %s of the input root: %w", n.Digest, err)
		return
	case p == "":
		p = "."
	}
	r.err = fmt.Errorf("read %s %s of the input root: %w", n.Kind, p, err)
}

// markLookup counts that the kernel asked for a name.
func (r *Root) markLookup(there bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if there {
		r.stats.Lookups++
	} else {
		r.stats.Absent++
	}
}

// tellBlob reports that somebody may get the bytes of d.
func (r *Root) tellBlob(d digest.Digest) {
	if r.spec.OnBlob != nil {
		r.spec.OnBlob(d)
	}
}

// look reports that somebody looks at the input n.
func (r *Root) look(n *node, l Look) {
	if r.spec.OnLook == nil || n.area != treeArea {
		return
	}
	r.mu.Lock()
	again := n.looked&l == l
	n.looked |= l
	var path string
	if !again {
		path = n.pathLocked()
	}
	r.mu.Unlock()
	if !again {
		r.spec.OnLook(path, l)
	}
}

// lookAbsent reports that somebody finds that parent has no such name.
func (r *Root) lookAbsent(parent *node, name string) {
	if r.spec.OnLook == nil {
		return
	}
	r.mu.Lock()
	path := parent.pathLocked()
	r.mu.Unlock()
	if path != "" {
		path += "/"
	}
	r.spec.OnLook(path+name, tree.LookUp)
}

// markRead counts the first read of n and reports it.
func (r *Root) markRead(n *node) {
	r.mu.Lock()
	if !r.countReadLocked(n.ino, n.Entry) {
		r.mu.Unlock()
		return
	}
	var path string
	if r.spec.OnFirstRead != nil {
		path = n.pathLocked()
	}
	r.mu.Unlock()
	if r.spec.OnFirstRead != nil {
		r.spec.OnFirstRead(path, n.Kind)
	}
}

// countReadLocked counts the first read of e, whose inode number is ino, and
// reports whether it was that.
func (r *Root) countReadLocked(ino uint64, e tree.Entry) bool {
	if _, again := r.seen[ino]; again {
		return false
	}
	r.seen[ino] = struct{}{}
	switch e.Kind {
	case Directory:
		r.stats.DirectoriesRead++
	case File:
		r.stats.FilesRead++
		r.stats.BytesRead += e.Digest.SizeBytes()
	case Symlink:
		r.stats.SymlinksRead++
	}
	return true
}
