package vfs

import (
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// BlobFolder is where the blobs that are local lie as plain files, which are
// never changed and may go at any time. With it, what several roots have in
// common is shown without asking this process.
type BlobFolder struct {
	Dir string
	// Path returns where below Dir the file of a blob is, if it is there; Parse is its inverse.
	Path  func(digest.Digest) string
	Parse func(path string) (digest.Digest, bool)
	// Used, if not nil, is called when an action has opened the file of a blob, soon
	// after it did and at the latest when its root is closed. It must not block.
	Used func(digest.Digest)
}

// graft is an image that a root shows.
type graft struct {
	image   *image
	point   string       // where it is mounted for the owner of the root
	entries []tree.Entry // of the directories from the root to the image's, that one included
	lacking atomic.Bool  // a directory was read that the image could have shown
	// seen has the inodes whose opening was reported. Who has the watcher's turn has it.
	seen map[uint64]struct{}
}

// mayShowImages reports whether images can have part in the root: they belong to who
// owns most roots, or can be shown as if, and nobody sees which names are looked up in them.
func (r *Root) mayShowImages() bool {
	return r.fs.images != nil && !r.isPlain() && r.spec.OnLook == nil &&
		(r.owner == r.fs.owner || r.fs.namespaces[r.owner] != nil)
}

// addGrafts lets the root show what images have of its tree.
func (r *Root) addGrafts() {
	if !r.mayShowImages() {
		return
	}
	grafts := r.fs.images.choose(r.spec.Digest, r.spec.Source)
	for _, g := range grafts {
		var err error
		if g.point, err = r.fs.images.shownTo(g.image, r.owner); err != nil {
			r.fs.warnNamespaces.Do(func() {
				r.fs.log.Warn("large input roots have no metadata images, which is slower", zap.NamedError("missing", err))
			})
			for _, g := range grafts {
				r.fs.images.release(g.image)
			}
			return
		}
	}
	if r.grafts = grafts; len(r.grafts) == 0 {
		return
	}
	if whole := r.grafts[0].image; whole.path == "" {
		r.cover = whole.cover
		return
	}
	r.cover = &cover{}
	for _, g := range r.grafts {
		r.cover.graft(g.image, g.entries)
	}
}

// releaseGrafts gives the images back, and lets them be learned from this root.
func (r *Root) releaseGrafts() {
	if !r.mayShowImages() {
		return
	}
	for _, g := range r.grafts {
		r.fs.images.release(g.image)
	}
	r.fs.images.rootClosed(closedRoot{r.spec.Digest, r.spec.Source})
}

// opened takes notice that an inode of an image was opened in this root. The
// caller has the watcher's turn.
func (r *Root) opened(id imageID, nid uint64) {
	i := slices.IndexFunc(r.grafts, func(g *graft) bool { return g.image.id == id })
	if i < 0 {
		return
	}
	g := r.grafts[i]
	if _, again := g.seen[nid]; again {
		return
	}
	g.seen[nid] = struct{}{}
	n, err := g.image.nodes.Node(nid)
	if err != nil {
		r.blind.Store(true) // the image is damaged
		r.fs.log.Warn("a metadata image does not know its own inode", zap.String("path", g.image.path), zap.Error(err))
		return
	}
	e := tree.Entry{Kind: File}
	if n.Mode&unix.S_IFMT == unix.S_IFDIR {
		e.Kind = Directory
	}
	blobs := r.fs.images.blobs
	d, ok := blobs.Parse(strings.TrimPrefix(n.Redirect, "/"))
	if ok { // else a file without data, or a directory
		e.Digest = d
	}
	r.markPath(n.Path, e)
	if ok && blobs.Used != nil {
		blobs.Used(d)
	}
	if ok {
		r.tellBlob(d)
	}
}

// tellUnseen tells of all blobs that were opened in images until now: where nobody knows
// which, of all there are.
func (r *Root) tellUnseen() {
	if len(r.grafts) == 0 || r.ctx.Err() != nil {
		return
	}
	if r.watched {
		r.fs.watcher.drain()
	}
	if r.watched && !r.blind.Load() || r.spec.OnBlob == nil {
		return
	}
	seen := map[digest.Digest]struct{}{}
	for _, g := range r.grafts {
		r.tellBelow(g.image.digest, seen)
	}
}

// tellBelow tells of all blobs below a directory. What is not at hand is in no image.
func (r *Root) tellBelow(d digest.Digest, seen map[digest.Digest]struct{}) {
	dir, ok := r.spec.Source.LocalDirectory(d)
	if _, again := seen[d]; again || !ok {
		return
	}
	seen[d] = struct{}{}
	for i := range dir.Len() {
		switch e := dir.At(i); e.Kind {
		case tree.Dir:
			r.tellBelow(e.Digest, seen)
		case tree.File:
			r.tellBlob(e.Digest)
		}
	}
}

// markPath counts and reports the first read of the input e, which is at path,
// and of the directories on the way.
func (r *Root) markPath(path string, e tree.Entry) {
	type read struct {
		path string
		kind Kind
	}
	var first []read
	note := func(ino uint64, path string, e tree.Entry) {
		if r.countReadLocked(ino, e) {
			first = append(first, read{path, e.Kind})
		}
	}
	r.mu.Lock()
	ino := uint64(rootIno)
	for at := 0; at < len(path); {
		note(ino, strings.TrimSuffix(path[:at], "/"), tree.Entry{Kind: tree.Dir})
		name, _, _ := strings.Cut(path[at:], "/")
		ino = r.inoOf(ino, name)
		at += len(name) + 1
	}
	note(ino, path, e)
	r.mu.Unlock()
	if r.spec.OnFirstRead == nil {
		return
	}
	for _, f := range first {
		r.spec.OnFirstRead(f.path, f.kind)
	}
}

// lacks notes, once, that a directory was read that the image could have shown.
func (r *Root) lacks(img *image) {
	for _, g := range r.grafts {
		if g.image == img && g.lacking.CompareAndSwap(false, true) {
			r.fs.images.lacks(img)
		}
	}
}

// findBlob returns what the FUSE layer shows under name beside the input root:
// files of blobs, and the folders on the way to them, about which nobody asks
// who does not know what is in them.
func (r *Root) findBlob(parent *node, name string) (tree.Entry, bool) {
	e := tree.Entry{Name: name, Kind: Directory, Perm: 0o700, MTime: parent.MTime}
	r.mu.Lock()
	_, known := parent.children[name]
	path := parent.pathLocked() + "/" + name
	r.mu.Unlock()
	if parent.area == topArea {
		return e, known
	}
	path = strings.TrimPrefix(path, "/")
	if d, ok := r.fs.images.blobs.Parse(path); ok {
		e.Kind, e.Digest, e.Perm = File, d, 0o444
	}
	return e, true
}
