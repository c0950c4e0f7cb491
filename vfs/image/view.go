package image

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

// graft is an image that a root shows.
type graft struct {
	image   *image
	point   string       // mount point for the owner of the root
	entries []tree.Entry // of the directories from the root to the image's, that one included
	lacking atomic.Bool  // a directory was read that the image could have shown
	// seen has the inodes whose opening was reported. The holder of the watcher's turn owns it.
	seen map[uint64]struct{}
}

// Hooks get the reads of images. They may be called concurrently and must not block.
type Hooks struct {
	// Opened is called soon after the first open of each input that an image shows.
	Opened func(path string, e tree.Entry)
	// Blob is called for the blobs whose bytes these opens may have read.
	Blob func(digest.Digest)
}

// View is the images of one root, possibly none.
type View struct {
	cache  *Cache
	root   closedRoot
	hooks  Hooks
	grafts []*graft
	cover  *Cover // cover of the images; nil if there are none

	overlay fsid   // in which they are shown, once they are watched
	path    string // of the overlay then
	// top is the file handle of its root, until that was opened, if an image shows all of it. The
	// holder of the watcher's turn owns it.
	top   []byte
	left  bool // it is no longer watched. The holder of the watcher's turn owns it
	watch atomic.Uint32
	blind atomic.Bool // not all is known that was opened
}

// The states of View.watch.
const (
	unwatched uint32 = iota // opens are unknown
	watched
	watchOver // all is known that was opened
)

// View chooses images for the tree d of a root that belongs to owner, as far as that is known
// without waiting. If there are none for a large local tree, the View has one that is written while
// it is used, if waiter is not nil. It is nil if no image can be shown to owner, or above such
// inputs. Release must be called with it.
func (c *Cache) View(d digest.Digest, source Source, owner folder.Owner, hooks Hooks, waiter Waiter) *View {
	if owner != c.owner && c.namespaces[owner] == nil {
		return nil
	}
	v := &View{cache: c, root: closedRoot{d, source}, hooks: hooks}
	inputs, ok := source.LocalDirectory(d)
	if !ok {
		return v // for the cache to learn from it
	}
	// Overlayfs looks for the data of an image's files in the layers below the image first. At their
	// top these have no names that the input root does not have.
	if _, taken := inputs.Find(c.blobs.folder(d)); taken {
		return nil
	}
	grafts := c.choose(d, source)
	if len(grafts) == 0 && waiter != nil {
		grafts = c.growFor(d, source, waiter)
	}
	for _, g := range grafts {
		var err error
		if g.point, err = c.shownTo(g.image, owner); err != nil {
			c.warnOwner.Do(func() {
				c.log.Warn("large input roots have no metadata images, which is slower", zap.NamedError("missing", err))
			})
			for _, g := range grafts {
				c.release(g.image)
			}
			return v
		}
	}
	if v.grafts = grafts; len(grafts) == 0 {
		return v
	}
	if v.showsRoot() {
		v.cover = grafts[0].image.cover
		return v
	}
	v.cover = &Cover{}
	for _, g := range grafts {
		if g.image.members == nil {
			v.cover.graft(g.image.cover, g.entries)
		}
		for i, m := range g.image.members {
			v.cover.graft(g.image.covers[i], append(slices.Clone(g.entries), m))
		}
	}
	return v
}

// Cover returns what the images show; nil if there are none.
func (v *View) Cover() *Cover { return v.cover }

// Folders returns the mount points of the images. Those of one image, for several owners, are beside
// each other.
func (v *View) Folders() []string {
	var points []string
	for _, g := range v.grafts {
		points = append(points, g.point)
	}
	return points
}

// BlobDir returns the folder with the data of images' files.
func (v *View) BlobDir() string { return v.cache.blobs.Dir }

// Blob returns the blob whose file has that path in BlobDir.
func (v *View) Blob(path string) (digest.Digest, bool) { return v.cache.blobs.Parse(path) }

// Watch makes the hooks observe opens in the overlay at path, which shows the images. Without it,
// or if it fails, opens are unknown.
func (v *View) Watch(path string) error {
	if len(v.grafts) == 0 {
		return nil
	}
	return v.cache.watcher.watch(v, path)
}

// Unwatch stops Watch, and returns when the hooks have been called for all opens.
func (v *View) Unwatch() {
	if v.watch.CompareAndSwap(watched, watchOver) {
		v.cache.watcher.forget(v)
	}
}

// Drain returns when the hooks have been called for all earlier opens.
func (v *View) Drain() {
	if v.watch.Load() == watched {
		v.cache.watcher.drain()
	}
}

// Release gives the images back, and lets the cache learn from this root.
func (v *View) Release() {
	for _, g := range v.grafts {
		v.cache.release(g.image)
	}
	v.cache.rootClosed(v.root)
}

// opened takes notice that an inode of an image was opened in this root. The
// caller has the watcher's turn.
func (v *View) opened(id imageID, nid uint64) {
	i := slices.IndexFunc(v.grafts, func(g *graft) bool { return g.image.id == id })
	if i < 0 {
		return
	}
	g := v.grafts[i]
	if _, again := g.seen[nid]; again {
		return
	}
	g.seen[nid] = struct{}{}
	n, err := g.image.nodes.Node(nid)
	if err != nil {
		v.blind.Store(true) // the image is damaged
		v.cache.log.Warn("a metadata image lacks one of its own inodes", zap.String("path", g.image.path), zap.Error(err))
		return
	}
	e := tree.Entry{Kind: tree.File}
	if n.Mode&unix.S_IFMT == unix.S_IFDIR {
		e.Kind = tree.Dir
	}
	blobs := v.cache.blobs
	d, ok := blobs.Parse(strings.TrimPrefix(n.Redirect, "/"))
	switch {
	case ok:
		e.Digest = d
	case n.Redirect != "": // else a file without data, or a directory
		v.blind.Store(true)
	}
	v.hooks.Opened(n.Path, e)
	if ok && blobs.Used != nil {
		blobs.Used(d)
	}
	if ok {
		v.hooks.Blob(d)
	}
}

// showsRoot reports whether an image shows the whole input root, and not only a part of it.
func (v *View) showsRoot() bool {
	return len(v.grafts) > 0 && v.grafts[0].image.path == "" && v.grafts[0].image.members == nil
}

// openedTop takes notice that something was opened that is not in an image. Overlayfs says of its
// own root that it is in the writable layer. The caller has the watcher's turn.
func (v *View) openedTop(handle []byte) {
	if len(v.top) > 0 && bytes.Equal(handle, v.top) {
		v.top = nil
		v.hooks.Opened("", tree.Entry{Kind: tree.Dir})
	}
}

// SeesAll reports whether all opens in images were told, as far as the kernel has reported them.
func (v *View) SeesAll() bool {
	return len(v.grafts) == 0 || v.watch.Load() != unwatched && !v.blind.Load()
}

// TellBlobs returns when Hooks.Blob has been called for all blobs that were opened in images until
// now or, if these are unknown, for all blobs of the images. The error wraps vouch.ErrDamaged if an
// image cannot list them.
func (v *View) TellBlobs() error {
	if len(v.grafts) == 0 {
		return nil
	}
	v.Drain()
	if v.SeesAll() {
		return nil
	}
	seen := map[digest.Digest]struct{}{}
	for _, g := range v.grafts {
		if err := v.tellAll(g.image, seen); err != nil {
			return v.cache.damaged(g.image, fmt.Errorf("%w: %w", vouch.ErrDamaged, err))
		}
	}
	return nil
}

// tellAll reports all blobs of an image. It reads the image itself, because its directories may no
// longer be in memory.
func (v *View) tellAll(img *image, seen map[digest.Digest]struct{}) error {
	var strange string
	err := img.nodes.Redirects(func(redirect string) {
		d, ok := v.cache.blobs.Parse(strings.TrimPrefix(redirect, "/"))
		if !ok {
			strange = redirect
			return
		}
		if _, again := seen[d]; !again {
			seen[d] = struct{}{}
			v.hooks.Blob(d)
		}
	})
	if err == nil && strange != "" {
		err = fmt.Errorf("%q is not the path of a blob", strange)
	}
	return err
}

// Missed records, once for each image, that a directory below c was read through FUSE although an
// image could have shown it.
func (v *View) Missed(c *Cover) {
	for _, g := range v.grafts {
		if g.image == c.image && g.lacking.CompareAndSwap(false, true) {
			v.cache.lacks(g.image)
		}
	}
}

// Stale reports whether Vouch would have to read files; it does not wait.
func (v *View) Stale(due time.Time) bool {
	for _, g := range v.grafts {
		if g.image.grown == nil && !g.image.said.Since(due) {
			return true
		}
	}
	return false
}

// Vouch reads the images that were last verified before due, or were written to since. The error
// wraps vouch.ErrDamaged if one is damaged; no other root gets it from then on.
func (v *View) Vouch(ctx context.Context, due time.Time) error {
	for _, g := range v.grafts {
		if g.image.grown != nil {
			continue // only the kernel has its bytes
		}
		if err := v.cache.verify(ctx, g.image, due); err != nil {
			return err
		}
	}
	return nil
}

// Grown reports whether the view has an image that is written while it is used.
func (v *View) Grown() bool { return v.grownImage() != nil }

// grownImage returns that image, which no other view has; nil: there is none.
func (v *View) grownImage() *image {
	if i := slices.IndexFunc(v.grafts, func(g *graft) bool { return g.image.grown != nil }); i >= 0 {
		return v.grafts[i].image
	}
	return nil
}
