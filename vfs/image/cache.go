package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/budget"
	"github.com/forerunner-build/forerunner/vfs/erofs"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

const (
	// MinEntries is the number of entries that makes an image worth its mount. A large file is
	// worth as much, because each read of it then passes one layer less.
	MinEntries = 256
	largeFile  = 64 << 20
	// maxImages and maxImageBytes limit the mounted images; beyond them the least recently used is
	// removed.
	maxImages     = 64
	maxImageBytes = 1 << 30
	// defaultHidden is Options.HiddenBytes if there is none.
	defaultHidden = 128 << 20
	// maxGrafts bounds the images that one root shows: each is a layer of its overlay.
	maxGrafts = 8
	// maxClosed bounds the roots that wait to be learned from; more are forgotten.
	maxClosed = 16
	// maxSeen bounds the subtrees that are remembered to have been seen.
	maxSeen = 1 << 18
	// maxSmall bounds the directories that are known to have few entries.
	maxSmall = 1 << 16
	// maxUnfit bounds the trees that are known not to fit into a grown image.
	maxUnfit = 1 << 10
	// maxVisits limits the directories that are read to learn from one root.
	maxVisits = 1 << 17
	// RenewAfter is the number of roots that must have missed a directory in an image before the
	// image is replaced.
	RenewAfter = 3
)

// Cache makes, keeps and chooses metadata images: of the largest subtrees that several roots had at
// the same path. It learns from closed roots, in a goroutine of its own, so no action waits for an
// image.
type Cache struct {
	blobs      Blobs
	pointDir   string
	owner      folder.Owner
	namespaces map[folder.Owner]*os.File
	watcher    *watcher
	files      *files     // of grown images; nil: there are none
	limits     growLimits // of each
	memory     *budget.Budget
	mostHidden int64       // bytes that covers of images may take
	cannotGrow atomic.Bool // the kernel has refused to mount one
	noGathers  bool        // Options.DisableGathered
	// unfit are trees that had no room in a grown image when a command listed all of them: the next
	// root of such a tree has no grown image.
	unfit *bounded.Shared[digest.Digest, struct{}]
	log   *zap.Logger
	// warnOwner logs once that images cannot be shown to another owner.
	warnOwner sync.Once

	closed chan closedRoot
	stop   chan struct{}
	done   chan struct{}

	// Of the goroutine.
	seed    maphash.Seed
	seen    map[uint64]struct{}   // of path and digest
	small   map[digest.Digest]int // entries in and below directories that have few, all of them once local
	gathers map[string]*gather    // by path
	count   uint64                // of images that were made

	mu         sync.Mutex
	byPath     map[string]map[digest.Digest]*image
	gatherings map[string]int // gathered images in byPath, by their path
	all        int
	bytes      int64
	hidden     int64 // of all images that are not closed, retired ones included
	clock      uint64
}

// Options define the data of images, and their owners.
type Options struct {
	Blobs    Blobs
	PointDir string       // folder for mount points
	Owner    folder.Owner // owner of the entries
	// Memory limits the memory for trees while they are used; nil: no limit.
	Memory *budget.Budget
	// HiddenBytes limits the total memory for entries that images do not show. 0 is 128 MiB.
	HiddenBytes int64
	// DisableGathered leaves small subtrees to the FUSE layer, however many roots have them in
	// common.
	DisableGathered bool
	// Namespaces are user namespaces that map Owner, which is user and group 0, to these owners.
	Namespaces map[folder.Owner]*os.File
	Log        *zap.Logger
}

// Open makes a Cache without images, which Close ends. The error wraps a mounts.Error if the kernel
// does not report opens in images; Make tests whether it can show them.
func Open(o Options) (*Cache, error) {
	var err error
	if o.Blobs.Dir, err = filepath.Abs(o.Blobs.Dir); err != nil {
		return nil, err
	}
	c := &Cache{
		blobs: o.Blobs, pointDir: o.PointDir, owner: o.Owner, log: o.Log,
		namespaces: o.Namespaces,
		closed:     make(chan closedRoot, maxClosed),
		stop:       make(chan struct{}),
		done:       make(chan struct{}),
		seed:       maphash.MakeSeed(),
		seen:       map[uint64]struct{}{},
		small:      map[digest.Digest]int{},
		gathers:    map[string]*gather{},
		noGathers:  o.DisableGathered,
		byPath:     map[string]map[digest.Digest]*image{},
		gatherings: map[string]int{},
		limits:     growLimits{ahead: maxAhead, all: maxGrown},
		memory:     o.Memory,
		mostHidden: cmp.Or(o.HiddenBytes, defaultHidden),
		unfit:      bounded.NewShared[digest.Digest, struct{}](maxUnfit),
	}
	if c.watcher, err = newWatcher(); err != nil {
		return nil, err
	}
	if c.files, err = openFiles(filepath.Join(o.PointDir, ".growing"), c.watcher.is, o.Log); err != nil {
		o.Log.Debug("trees get metadata images when they are seen again", zap.Error(err))
	}
	go c.run()
	return c, nil
}

func (c *Cache) run() {
	defer close(c.done)
	for {
		select {
		case <-c.stop:
			return
		case r := <-c.closed:
			c.learn(r)
		}
	}
}

// Close unmounts all images. No root may still show one.
func (c *Cache) Close() error {
	close(c.stop)
	<-c.done
	err := c.DropAll()
	c.watcher.close()
	if c.files != nil {
		err = errors.Join(err, c.files.close())
	}
	return err
}

// DropAll forgets all images and closes those that no root shows.
func (c *Cache) DropAll() error {
	c.mu.Lock()
	var gone []*image
	for c.all > 0 {
		gone = c.retireLocked(c.oldestLocked(anyImage), gone)
	}
	c.mu.Unlock()
	var errs []error
	for _, img := range gone {
		errs = append(errs, img.close())
	}
	return errors.Join(errs...)
}

// rootClosed schedules learning from the root, unless the queue is full.
func (c *Cache) rootClosed(r closedRoot) {
	select {
	case c.closed <- r:
	default:
	}
}

// choose returns the images that have a part of the tree d in its present form, as far as that is
// known without waiting; release must be called with them.
func (c *Cache) choose(d digest.Digest, source Source) []*graft {
	c.mu.Lock()
	sorted := make([]string, 0, len(c.byPath))
	for p := range c.byPath {
		sorted = append(sorted, p)
	}
	c.mu.Unlock()
	// Parents come before their children.
	slices.Sort(sorted)
	var found []*graft
	for _, p := range sorted {
		if slices.ContainsFunc(found, func(g *graft) bool { return g.image.shows(p) }) {
			continue
		}
		entries, at, ok := descend(d, p, source)
		if !ok {
			continue
		}
		img := c.use(p, at)
		if img == nil {
			img = c.useGathered(p, at, source)
		}
		if img != nil {
			found = append(found, &graft{image: img, entries: entries, seen: map[uint64]struct{}{}})
		}
	}
	if len(found) > maxGrafts {
		slices.SortFunc(found, func(a, b *graft) int { return -cmp.Compare(a.image.dirs, b.image.dirs) })
		for _, g := range found[maxGrafts:] {
			c.release(g.image)
		}
		found = found[:maxGrafts]
	}
	return found
}

// descend follows path from the directory d, through local directories, to the digest at its end.
func descend(d digest.Digest, path string, source Source) (entries []tree.Entry, at digest.Digest, ok bool) {
	if path == "" {
		return nil, d, true
	}
	for name := range strings.SplitSeq(path, "/") {
		dir, ok := source.LocalDirectory(d)
		if !ok {
			return nil, d, false
		}
		e, ok := dir.Find(name)
		if !ok || e.Kind != tree.Dir {
			return nil, d, false
		}
		entries = append(entries, cloneEntry(e))
		d = e.Digest
	}
	return entries, d, true
}

// use counts a user of the image of d at path, nil if there is none.
func (c *Cache) use(path string, d digest.Digest) *image {
	c.mu.Lock()
	defer c.mu.Unlock()
	img := c.byPath[path][d]
	if img != nil {
		c.countUserLocked(img)
	}
	return img
}

func (c *Cache) countUserLocked(img *image) {
	c.clock++
	img.lastUse = c.clock
	img.users++
}

// release ends a use.
func (c *Cache) release(img *image) {
	c.mu.Lock()
	img.users--
	gone := img.retired && img.users == 0
	if gone {
		c.hidden -= img.hidden
	}
	c.mu.Unlock()
	if gone {
		c.drop(img)
	}
}

func (c *Cache) drop(img *image) {
	if err := img.close(); err != nil {
		c.log.Warn("metadata image was not unmounted", zap.String("path", img.path), zap.Error(err))
	}
}

// lacks notes that a root read a directory that the image could have shown.
func (c *Cache) lacks(img *image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	img.lacking++
}

// Make makes an image of the directory d at path, which roots can choose from then on. It must not
// be called while roots are closed.
func (c *Cache) Make(path string, d digest.Digest, source Source) error {
	return c.make(site{path: path, digest: d}, source)
}

// Len returns the number of images that roots can show.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all
}

// Serves reports whether the cache itself opens files on that thread, so that the kernel can report
// opens of others: a server of files must not make it wait, and must not count its opens.
func (c *Cache) Serves(thread uint32) bool { return c.watcher.is(thread) }

// make makes an image and lets roots choose it from now on.
func (c *Cache) make(p site, source Source) error {
	var dir *tree.Directory
	if p.members == nil {
		var ok bool
		if dir, ok = source.LocalDirectory(p.digest); !ok {
			return nil
		}
	}
	c.count++
	img, err := c.newImage(p, dir, source.LocalDirectory)
	if errors.Is(err, erofs.ErrTooLarge) {
		c.unfit.Put(p.digest, struct{}{})
	}
	if err != nil {
		return err
	}
	gone, err := c.add(img)
	if err != nil {
		gone = append(gone, img)
	}
	for _, old := range gone {
		c.drop(old)
	}
	return err
}

// errHidden is the error of an image that there is no memory for at the moment.
var errHidden = errors.New("metadata images that are in use take the memory for the entries that it does not show")

// add enters img, and returns the images that must be closed for it.
func (c *Cache) add(img *image) (gone []*image, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.hidden+img.hidden > c.mostHidden {
		old := c.oldestLocked(func(i *image) bool { return i.users == 0 && i.hidden > 0 })
		if old == nil {
			return gone, errHidden
		}
		gone = c.retireLocked(old, gone)
	}
	if old := c.byPath[img.path][img.digest]; old != nil {
		gone = c.retireLocked(old, gone)
	}
	for c.all >= maxImages || c.all > 0 && c.bytes+img.bytes > maxImageBytes {
		gone = c.retireLocked(c.oldestLocked(anyImage), gone)
	}
	if c.byPath[img.path] == nil {
		c.byPath[img.path] = map[digest.Digest]*image{}
	}
	c.byPath[img.path][img.digest] = img
	c.clock++
	img.lastUse = c.clock
	if img.members != nil {
		c.gatherings[img.path]++
		if old := c.crowdedLocked(img.path); old != nil {
			gone = c.retireLocked(old, gone)
		}
	}
	c.all++
	c.bytes += img.bytes
	c.hidden += img.hidden
	return gone, nil
}

func anyImage(*image) bool { return true }

// oldestLocked returns the least recently used of those images; nil: there are none.
func (c *Cache) oldestLocked(those func(*image) bool) (oldest *image) {
	for _, same := range c.byPath {
		for _, img := range same {
			if !those(img) {
				continue
			}
			if oldest == nil || img.lastUse < oldest.lastUse {
				oldest = img
			}
		}
	}
	return oldest
}

// retireLocked takes img out; without users it is added to gone.
func (c *Cache) retireLocked(img *image, gone []*image) []*image {
	delete(c.byPath[img.path], img.digest)
	if len(c.byPath[img.path]) == 0 {
		delete(c.byPath, img.path)
	}
	if img.members != nil {
		if c.gatherings[img.path]--; c.gatherings[img.path] == 0 {
			delete(c.gatherings, img.path)
		}
	}
	c.all--
	c.bytes -= img.bytes
	img.retired = true
	if img.users == 0 {
		gone = append(gone, img)
		c.hidden -= img.hidden
	}
	return gone
}

// verify reads an image that was last verified before due, or was written to since. The error wraps
// vouch.ErrDamaged if it is wrong: no root gets it any more.
func (c *Cache) verify(ctx context.Context, img *image, due time.Time) error {
	if !img.marked() {
		due = time.Now()
	}
	err := img.said.Look(due, func() error { return img.check(ctx) })
	if !errors.Is(err, vouch.ErrDamaged) {
		return err
	}
	return c.damaged(img, err)
}

// damaged retires an image and logs why. The caller's root is one of its users.
func (c *Cache) damaged(img *image, err error) error {
	c.mu.Lock()
	known := c.byPath[img.path][img.digest] == img
	if known {
		c.retireLocked(img, nil)
	}
	c.mu.Unlock()
	if known {
		c.log.Warn("a metadata image was damaged; it is dropped, and actions that saw it run again",
			zap.String("path", img.path), zap.Stringer("digest", img.digest), zap.String("folder", c.blobs.Dir), zap.Error(err))
	}
	return fmt.Errorf("metadata image of %q: %w", img.path, err)
}

// point returns the folder for the mount point of the next image.
func (c *Cache) point() string {
	return filepath.Join(c.pointDir, fmt.Sprintf(".image-%d", c.count))
}
