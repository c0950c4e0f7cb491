package vfs

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
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

const (
	// minImageEntries is the size from which on an image is worth its mount. A large
	// file is worth as much: each read of it is one layer shorter.
	minImageEntries = 256
	largeFile       = 64 << 20
	// maxImages and maxImageBytes bound what is mounted at once; past them the one used
	// the longest ago goes.
	maxImages     = 64
	maxImageBytes = 1 << 30
	// maxGrafts bounds the images that one root shows: each is a layer of its overlay.
	maxGrafts = 8
	// maxClosed bounds the roots that wait to be learned from; more are forgotten.
	maxClosed = 16
	// maxSightings bounds the subtrees that are remembered to have been seen.
	maxSightings = 1 << 18
	// maxVisits bounds the directories looked at to learn from one root.
	maxVisits = 1 << 17
	// renewAfter is how many roots must have missed a directory in an image
	// before it is made anew.
	renewAfter = 3
)

// images makes, keeps and chooses metadata images: of the largest subtrees that
// several roots had at the same path. It learns from roots that were closed, in
// a goroutine of its own, so no action waits for an image.
type images struct {
	blobs    *BlobFolder
	pointDir string
	owner    Owner
	// namespaces are Options.Namespaces.
	namespaces map[Owner]*os.File
	log        *zap.Logger

	closed chan closedRoot
	stop   chan struct{}
	done   chan struct{}

	// Of the goroutine.
	seed      maphash.Seed
	sightings map[uint64]struct{} // of path and digest
	count     uint64              // of images that were made

	mu     sync.Mutex
	byPath map[string]map[digest.Digest]*image
	all    int
	bytes  int64
	clock  uint64
}

// closedRoot is what is to be learned from.
type closedRoot struct {
	digest digest.Digest
	source Source
}

func newImages(f *FS, blobs *BlobFolder) *images {
	m := &images{
		blobs: blobs, pointDir: f.pointDir, owner: f.owner, log: f.log,
		namespaces: f.namespaces,
		closed:     make(chan closedRoot, maxClosed),
		stop:       make(chan struct{}),
		done:       make(chan struct{}),
		seed:       maphash.MakeSeed(),
		sightings:  map[uint64]struct{}{},
		byPath:     map[string]map[digest.Digest]*image{},
	}
	go m.run()
	return m
}

func (m *images) run() {
	defer close(m.done)
	for {
		select {
		case <-m.stop:
			return
		case c := <-m.closed:
			m.learn(c)
		}
	}
}

// close unmounts all images. No root may show one any more.
func (m *images) close() error {
	close(m.stop)
	<-m.done
	return m.dropAll()
}

// dropAll forgets all images and closes those that no root shows.
func (m *images) dropAll() error {
	m.mu.Lock()
	var gone []*image
	for m.all > 0 {
		gone = m.retireLocked(m.oldestLocked(), gone)
	}
	m.mu.Unlock()
	var errs []error
	for _, img := range gone {
		errs = append(errs, img.close())
	}
	return errors.Join(errs...)
}

// rootClosed has the root looked at soon, unless there is too much to do.
func (m *images) rootClosed(c closedRoot) {
	select {
	case m.closed <- c:
	default:
	}
}

// choose returns the images that have a part of the tree d as it is, as far as
// that can be told without waiting; release must be called with them.
func (m *images) choose(d digest.Digest, source Source) []*graft {
	m.mu.Lock()
	paths := make([]string, 0, len(m.byPath))
	for p := range m.byPath {
		paths = append(paths, p)
	}
	m.mu.Unlock()
	// Parents come before what is below them.
	slices.Sort(paths)
	var found []*graft
	for _, p := range paths {
		if slices.ContainsFunc(found, func(g *graft) bool { return within(p, g.image.path) }) {
			continue
		}
		entries, at, ok := descend(d, p, source)
		if !ok {
			continue
		}
		if img := m.use(p, at); img != nil {
			found = append(found, &graft{image: img, entries: entries, seen: map[uint64]struct{}{}})
		}
	}
	if len(found) > maxGrafts {
		slices.SortFunc(found, func(a, b *graft) int { return -cmp.Compare(a.image.dirs, b.image.dirs) })
		for _, g := range found[maxGrafts:] {
			m.release(g.image)
		}
		found = found[:maxGrafts]
	}
	return found
}

// within reports whether path is parent or below it.
func within(path, parent string) bool {
	return parent == "" || path == parent || strings.HasPrefix(path, parent+"/")
}

// descend follows path from the directory d, through what is at hand, to the
// digest of what is there.
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
func (m *images) use(path string, d digest.Digest) *image {
	m.mu.Lock()
	defer m.mu.Unlock()
	img := m.byPath[path][d]
	if img == nil {
		return nil
	}
	m.clock++
	img.lastUse = m.clock
	img.users++
	return img
}

// release ends a use.
func (m *images) release(img *image) {
	m.mu.Lock()
	img.users--
	gone := img.retired && img.users == 0
	m.mu.Unlock()
	if gone {
		m.drop(img)
	}
}

func (m *images) drop(img *image) {
	if err := img.close(); err != nil {
		m.log.Warn("metadata image was not unmounted", zap.String("path", img.path), zap.Error(err))
	}
}

// lacks notes that a root read a directory that the image could have shown.
func (m *images) lacks(img *image) {
	m.mu.Lock()
	defer m.mu.Unlock()
	img.lacking++
}

// learn looks for subtrees of a closed root that were seen before at their
// path, the largest first, and makes images of those that are large enough.
func (m *images) learn(c closedRoot) {
	s := &survey{images: m, source: c.source, small: map[digest.Digest]int{}, left: maxVisits}
	if len(m.sightings) > maxSightings {
		clear(m.sightings)
	}
	s.visit("", c.digest)
	for _, want := range s.wanted {
		select {
		case <-m.stop:
			return
		default:
		}
		if err := m.make(want, c.source); err != nil {
			m.log.Warn("metadata image was not made; its subtree is served by this process",
				zap.String("path", want.path), zap.Stringer("digest", want.digest), zap.Error(err))
		}
	}
}

// site is a subtree at a path.
type site struct {
	path   string
	digest digest.Digest
}

// survey looks at what is at hand of one tree.
type survey struct {
	images *images
	source Source
	small  map[digest.Digest]int // entries at hand in and below directories that have few
	left   int                   // directories that may be looked at
	wanted []site
}

// visit decides about the subtree d at path.
func (s *survey) visit(path string, d digest.Digest) {
	if known, renew := s.images.known(path, d); known {
		if renew {
			s.wanted = append(s.wanted, site{path, d})
		}
		return
	}
	if !s.large(d) {
		return
	}
	if s.images.sighted(path, d) {
		s.wanted = append(s.wanted, site{path, d})
		return
	}
	dir, ok := s.source.LocalDirectory(d)
	if !ok || s.left <= 0 {
		return
	}
	s.left--
	for i := range dir.Len() {
		if dir.Kind(i) != tree.Dir {
			continue
		}
		e := dir.At(i)
		child := e.Name
		if path != "" {
			child = path + "/" + e.Name
		}
		s.visit(child, e.Digest)
	}
}

// large reports whether so much in and below d is at hand that an image is worth
// its mount. It looks no further than it must.
func (s *survey) large(d digest.Digest) bool {
	return s.count(d, minImageEntries, 0) >= minImageEntries
}

// count returns the number of entries at hand in and below d, with what large
// files count, or one that is not below want.
func (s *survey) count(d digest.Digest, want, depth int) int {
	if n, ok := s.small[d]; ok {
		return n
	}
	dir, ok := s.source.LocalDirectory(d)
	if !ok || s.left <= 0 || depth > maxImageDepth {
		return 0
	}
	s.left--
	n := dir.Len()
	for i := 0; i < dir.Len() && n < want; i++ {
		switch e := dir.At(i); {
		case e.Kind == tree.Dir:
			n += s.count(e.Digest, want-n, depth+1)
		case e.Kind == tree.File && e.Digest.SizeBytes() >= largeFile:
			n += minImageEntries
		}
	}
	if n < want {
		s.small[d] = n
	}
	return n
}

// known reports whether there is an image, and whether it lacks so much that it
// should be made anew.
func (m *images) known(path string, d digest.Digest) (known, renew bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	img := m.byPath[path][d]
	if img == nil {
		return false, false
	}
	return true, img.lacking >= renewAfter
}

// sighted notes that the subtree was seen, and reports whether it was before.
func (m *images) sighted(path string, d digest.Digest) bool {
	var h maphash.Hash
	h.SetSeed(m.seed)
	_, _ = h.WriteString(path)
	maphash.WriteComparable(&h, d)
	key := h.Sum64()
	if _, ok := m.sightings[key]; ok {
		return true
	}
	m.sightings[key] = struct{}{}
	return false
}

// make makes an image and lets roots choose it from now on.
func (m *images) make(p site, source Source) error {
	dir, ok := source.LocalDirectory(p.digest)
	if !ok {
		return nil
	}
	m.count++
	img, err := m.newImage(p.path, dir, source.LocalDirectory)
	if err != nil {
		return err
	}
	img.digest = p.digest
	for _, old := range m.add(img) {
		m.drop(old)
	}
	return nil
}

// add enters img, and returns the images that are to be closed for it.
func (m *images) add(img *image) (gone []*image) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.byPath[img.path][img.digest]; old != nil {
		gone = m.retireLocked(old, gone)
	}
	for m.all >= maxImages || m.all > 0 && m.bytes+img.bytes > maxImageBytes {
		gone = m.retireLocked(m.oldestLocked(), gone)
	}
	if m.byPath[img.path] == nil {
		m.byPath[img.path] = map[digest.Digest]*image{}
	}
	m.byPath[img.path][img.digest] = img
	m.clock++
	img.lastUse = m.clock
	m.all++
	m.bytes += img.bytes
	return gone
}

func (m *images) oldestLocked() (oldest *image) {
	for _, same := range m.byPath {
		for _, img := range same {
			if oldest == nil || img.lastUse < oldest.lastUse {
				oldest = img
			}
		}
	}
	return oldest
}

// retireLocked takes img out; without users it is added to gone.
func (m *images) retireLocked(img *image, gone []*image) []*image {
	delete(m.byPath[img.path], img.digest)
	if len(m.byPath[img.path]) == 0 {
		delete(m.byPath, img.path)
	}
	m.all--
	m.bytes -= img.bytes
	img.retired = true
	if img.users == 0 {
		gone = append(gone, img)
	}
	return gone
}

// verify reads an image that was last seen to be right before due, or was written to since. The
// error wraps vouch.ErrDamaged if it is wrong: no root gets it any more.
func (m *images) verify(ctx context.Context, img *image, due time.Time) error {
	if !img.marked() {
		due = time.Now()
	}
	err := img.said.Look(due, func() error { return img.check(ctx) })
	if !errors.Is(err, vouch.ErrDamaged) {
		return err
	}
	m.mu.Lock()
	known := m.byPath[img.path][img.digest] == img
	if known {
		m.retireLocked(img, nil) // the caller's root is a user
	}
	m.mu.Unlock()
	if known {
		m.log.Warn("a metadata image was damaged; it is dropped, and actions that saw it run again",
			zap.String("path", img.path), zap.Stringer("digest", img.digest), zap.String("folder", m.blobs.Dir), zap.Error(err))
	}
	return fmt.Errorf("metadata image of %q: %w", img.path, err)
}

// point returns the folder for the mount point of the next image.
func (m *images) point() string {
	return filepath.Join(m.pointDir, fmt.Sprintf(".image-%d", m.count))
}

// Images returns how many metadata images there are for roots to show.
func (f *FS) Images() int {
	if f.images == nil {
		return 0
	}
	f.images.mu.Lock()
	defer f.images.mu.Unlock()
	return f.images.all
}

// openImages tries images out, and goes without them if they do not work here.
func (f *FS) openImages(blobs *BlobFolder) {
	err := f.startImages(*blobs)
	if err == nil {
		err = f.tryImage()
	}
	if err == nil {
		return
	}
	f.log.Warn("no metadata images for input roots", missing(err),
		zap.String("costs", costOfNoImages), zap.String("to_have_it", imagesAdvice))
	if err := f.closeImages(); err != nil {
		f.log.Warn("metadata images were not closed", zap.Error(err))
	}
}

func (f *FS) startImages(blobs BlobFolder) error {
	var err error
	if blobs.Dir, err = filepath.Abs(blobs.Dir); err != nil {
		return err
	}
	if f.watcher, err = newWatcher(); err != nil {
		return err
	}
	f.images = newImages(f, &blobs)
	return nil
}

func (f *FS) closeImages() error {
	var err error
	if f.images != nil {
		err = f.images.close()
		f.images = nil
	}
	if f.watcher != nil {
		f.watcher.close()
		f.watcher = nil
	}
	return err
}
