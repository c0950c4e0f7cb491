package image

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/budget"
	"github.com/forerunner-build/forerunner/vfs/erofs"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

const (
	// maxPushed limits the bytes of a region that are stored at its first request.
	maxPushed = 128 << 10
	// maxAhead limits the directories that get an extent while others are written ahead, and
	// maxAheadBytes the position of the last one: the rest of the space is for requests.
	maxAhead      = maxVisits
	maxAheadBytes = erofs.MaxRegionAt / 4
	// maxGrown limits the directories whose position a grown image knows.
	maxGrown = 1 << 21
	// lastExtent is where no region is.
	lastExtent = erofs.MaxRegionAt - erofs.BlockSize
	// extentBytes is the memory of an extent besides its name, and nidBytes of each of its entries.
	extentBytes, nidBytes = 256, 4
	// maxEntries limits those of a directory that has a region.
	maxEntries = 1 << 21
	// maxKept limits the sizes of the directories that a grown image keeps. It must find others
	// again.
	maxKept = 256 << 20
	// keptRegions bounds the regions that are kept for the next block.
	keptRegions = 4
)

// An Asker is a thread that waits for a directory.
type Asker struct {
	Cancel <-chan struct{} // closed when the thread got a signal
	Thread uint32          // 0 if it is unknown
}

// A Waiter fetches missing directories for readers of a root.
type Waiter interface {
	// Await waits for a directory at that path of the root.
	Await(a Asker, path string, d digest.Digest) (*tree.Directory, error)
	// Fail records the reason why a directory could not be shown.
	Fail(path string, err error)
}

// errEnded is the error of reads of a removed grown image.
var errEnded = errors.New("the metadata image was taken away")

// A grown image is that of the tree of a single root. It is mounted empty: each directory is
// written when the kernel reads it, and after some of these the others ahead of readers. It exists
// in memory and in the kernel's page cache only.
type grown struct {
	files   *files
	blobs   *Blobs
	options erofs.Options
	source  Source
	waiter  Waiter
	head    []byte
	longest int    // of redirects
	node    uint64 // in files

	busy sync.WaitGroup // readers, and the writer ahead; none begins after the end

	limits growLimits
	memory *budget.Holder // of extents, and of their contents
	unfit  func()         // called at a request for a directory that can have no extent

	mu      sync.Mutex
	ended   bool
	next    int64     // where the next region begins
	extents []*extent // in the order of their regions
	todo    []*extent // directories to write ahead, the next one last; some may have been written by now
	growing bool      // a goroutine is writing ahead
	demand  demand
	kept    []region // the last few
	dirs    int64    // sizes of the directories that extents keep

	crowded bool // the memory that was last lacking belongs to others
}

// growLimits bound the directories that have an extent.
type growLimits struct{ ahead, all int }

// An extent is a directory of the tree. It is made when the one above it is written.
type extent struct {
	at, bytes int64
	up        *extent // of the root itself
	entry     tree.Entry

	// Guarded by grown.mu.
	requested bool            // once
	nids      []uint32        // of its entries; nil: it is not written yet
	dir       *tree.Directory // once it is written, nil beyond maxKept
}

type region struct {
	of    *extent
	bytes []byte
}

// grow makes a grown image of the tree d and mounts it.
func (c *Cache) grow(d digest.Digest, source Source, waiter Waiter) (_ *image, err error) {
	img := &image{digest: d, users: 1, retired: true}
	if _, err := rand.Read(img.id[:]); err != nil {
		return nil, err
	}
	g := &grown{
		files: c.files, blobs: &c.blobs, options: c.imageOptions(img.id), source: source, waiter: waiter,
		next: erofs.BlockSize, limits: c.limits, memory: c.memory.Holder(),
		longest: len(c.blobs.Path(d)) + 32, // sizes of other blobs have more digits
		unfit:   func() { c.unfit.Put(d, struct{}{}) },
	}
	defer func() {
		if err != nil {
			g.memory.Close()
		}
	}()
	if g.head, err = erofs.Head(g.options); err != nil {
		return nil, err
	}
	dir, ok := source.LocalDirectory(d)
	if !ok || !g.allocateLocked(nil, tree.Entry{Kind: tree.Dir, Digest: d, Perm: 0o755, MTime: time.Unix(tree.DefaultMTime, 0)}) {
		return nil, fmt.Errorf("the root directory, of %d bytes, is not available", d.SizeBytes())
	}
	top, err := g.write(g.extents[0], dir, &scratch{})
	if err != nil {
		return nil, err
	}
	g.keep(g.extents[0], top) // the kernel reads it while it mounts
	img.grown, img.nodes, img.cover = g, g, &Cover{image: img}
	file := c.files.add(g)
	point := filepath.Join(c.pointDir, fmt.Sprintf(".grown-%d", g.node))
	img.point = filepath.Join(point, "lower")
	if err := os.MkdirAll(img.point, 0o755); err != nil {
		g.end()
		return nil, err
	}
	if err := unix.Mount(file, img.point, "erofs", unix.MS_RDONLY|unix.MS_NODEV, ""); err != nil {
		g.end()
		return nil, errors.Join(&mounts.Error{What: "erofs", Err: err}, os.Remove(img.point), os.Remove(point))
	}
	return img, nil
}

// end stops reads, and waits until no read or write is in progress. The caller must first fail
// readers that wait for a directory.
func (g *grown) end() {
	g.mu.Lock()
	g.ended = true
	g.kept = nil
	g.mu.Unlock()
	g.busy.Wait()
	g.files.remove(g)
	g.memory.Close()
}

// allocateLocked gives a directory its extent, and reports whether it has one.
func (g *grown) allocateLocked(up *extent, e tree.Entry) bool {
	size := e.Digest.SizeBytes()
	if size > tree.MaxBytes || len(g.extents) >= g.limits.all {
		return false
	}
	p := &extent{at: g.next, bytes: erofs.RegionBytes(size, g.longest), up: up, entry: cloneEntry(e)}
	if p.at+p.bytes > lastExtent || !g.takeLocked(extentBytes+int64(len(e.Name))) {
		return false
	}
	if up == nil {
		p.up = p
	}
	g.next += p.bytes
	g.extents = append(g.extents, p)
	return true
}

// takeLocked takes memory, and reports whether it did.
func (g *grown) takeLocked(n int64) bool {
	ok := g.memory.Take(n)
	if !ok {
		g.crowded = !g.memory.Exceeds(n)
	}
	return ok
}

// noRoom notes that somebody asked for a directory without room: no root of the tree has a grown
// image again, unless the memory that it lacks is that of others.
func (g *grown) noRoom() {
	g.mu.Lock()
	crowded := g.crowded
	g.mu.Unlock()
	if !crowded {
		g.unfit()
	}
}

// find returns the directory whose region has that byte.
func (g *grown) find(at int64) (*extent, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i, found := slices.BinarySearchFunc(g.extents, at, func(p *extent, at int64) int { return cmp.Compare(p.at, at) })
	if !found {
		i--
	}
	switch {
	case g.ended:
		return nil, errEnded
	case i < 0 || at >= g.extents[i].at+g.extents[i].bytes:
		return nil, erofs.ErrNotFound
	}
	return g.extents[i], nil
}

// begin counts a reader, for end to wait for; false: the image has ended.
func (g *grown) begin() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.busy.Add(1)
	}
	return !g.ended
}

// read fills b with the bytes at that offset, and waits for the directories that it needs. False:
// one did not come.
func (g *grown) read(b []byte, at int64, asker Asker) bool {
	if !g.begin() {
		return false
	}
	defer g.busy.Done()
	for len(b) > 0 {
		from, n := g.head, 0
		begin := int64(0)
		if at >= erofs.BlockSize {
			p, err := g.find(at)
			if err != nil {
				if !errors.Is(err, errEnded) {
					g.noRoom()
					g.waiter.Fail("", fmt.Errorf("directories of %w: %w", tree.ErrTooLarge, erofs.ErrTooLarge))
				}
				return false
			}
			if from, err = g.regionOf(p, wanted{at, len(b)}, asker); err != nil {
				return false
			}
			begin = p.at
		}
		if n = copy(b, from[min(at-begin, int64(len(from))):]); n == 0 {
			return false
		}
		b, at = b[n:], at+int64(n)
	}
	return true
}

// wanted are the bytes of a request.
type wanted struct {
	at  int64
	len int
}

// regionOf returns the region of p for a request.
func (g *grown) regionOf(p *extent, w wanted, asker Asker) ([]byte, error) {
	g.mu.Lock()
	i := slices.IndexFunc(g.kept, func(r region) bool { return r.of == p })
	if i >= 0 {
		defer g.mu.Unlock()
		return g.kept[i].bytes, nil
	}
	first := g.demand.note(p, g.nextLocked())
	if g.demand.isForAll(len(g.extents)) && !g.ended && !g.growing {
		g.growing = true
		g.busy.Go(g.grow)
	}
	g.mu.Unlock()
	dir, ok := g.directory(p)
	if !ok && g.files.watcher(asker.Thread) {
		return nil, errEnded
	}
	if !ok {
		var err error
		if dir, err = g.waiter.Await(asker, p.path(), p.entry.Digest); err != nil {
			return nil, err
		}
	}
	b, err := g.write(p, dir, &scratch{})
	if err == nil {
		g.keep(p, b)
		if first {
			g.push(p, b, w)
		}
	}
	if errors.Is(err, erofs.ErrTooLarge) {
		g.noRoom()
		err = fmt.Errorf("%w: %w", tree.ErrTooLarge, err)
	}
	if err != nil {
		g.waiter.Fail(p.path(), err)
	}
	return b, err
}

// push stores the blocks of a small region but those of the request, which are locked until it is
// answered: its reader needs some of them next. At most one request pushes a region, so no two wait
// for one another's blocks.
func (g *grown) push(p *extent, b []byte, w wanted) {
	if len(b) > maxPushed {
		return
	}
	from := (w.at - p.at) &^ (erofs.BlockSize - 1)
	to := (w.at - p.at + int64(w.len) + erofs.BlockSize - 1) &^ (erofs.BlockSize - 1)
	// The result does not matter: a reader requests what is not there.
	_ = g.files.store(g, p.at, b[:min(from, int64(len(b)))])
	_ = g.files.store(g, p.at+to, b[min(to, int64(len(b))):])
}

// write makes the region of p, and gives its entries their extents. The region lies in s.
func (g *grown) write(p *extent, dir *tree.Directory, s *scratch) ([]byte, error) {
	if dir.Len() > maxEntries {
		return nil, erofs.ErrTooLarge
	}
	r := erofs.Region{At: p.at, Parent: erofs.NID(p.up.at), Dir: g.blobs.show(p.entry), NIDs: make([]uint32, dir.Len())}
	var err error
	if r.Dir.Entries, err = g.blobs.showAll(dir, s); err != nil {
		return nil, err
	}
	g.mu.Lock()
	if p.nids == nil && !g.takeLocked(nidBytes*int64(dir.Len())) {
		g.mu.Unlock()
		return nil, erofs.ErrTooLarge
	}
	below := len(g.extents)
	for i := range dir.Len() {
		switch {
		case dir.Kind(i) != tree.Dir:
		case p.nids != nil:
			r.NIDs[i] = p.nids[i]
		case g.allocateLocked(p, dir.At(i)):
			r.NIDs[i] = erofs.NID(g.extents[len(g.extents)-1].at)
		default: // there is no region: the reader gets an error
			r.NIDs[i] = erofs.NID(lastExtent)
		}
	}
	if p.nids == nil {
		p.nids = slices.Clone(r.NIDs) // the numbers of directories are permanent
		for i := len(g.extents) - 1; i >= below; i-- {
			g.todo = append(g.todo, g.extents[i])
		}
		if size := p.entry.Digest.SizeBytes(); g.dirs+size <= maxKept && g.memory.TakeSpare(size+nidBytes*int64(dir.Len())) {
			g.dirs += size
			p.dir = dir
		}
	}
	g.mu.Unlock()
	s.region, err = r.Append(s.region[:0], g.options)
	if err == nil && int64(len(s.region)) > p.bytes {
		err = erofs.ErrTooLarge
	}
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p.nids = r.NIDs
	return s.region, nil
}

// keep keeps a region for requests of its other blocks.
func (g *grown) keep(p *extent, b []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ended {
		g.kept = append(g.kept[max(0, len(g.kept)+1-keptRegions):], region{p, b})
	}
}

// grow writes local directories and gives them to the kernel, until limits.ahead. It begins with
// those below the directory that was written last, in the order in which a reader of the whole tree
// comes to them: so it is ahead of one, whatever part of the tree that reads.
func (g *grown) grow() {
	var s scratch
	for {
		s.trim()
		p := g.nextAhead()
		if p == nil {
			return
		}
		dir, ok := g.directory(p)
		if !ok {
			continue
		}
		b, err := g.write(p, dir, &s)
		if err != nil {
			continue // a reader gets the error
		}
		if g.files.store(g, p.at, b) != nil {
			return // no retry
		}
	}
}

// nextAhead returns what to write ahead; nil: nothing, and the caller ends.
func (g *grown) nextAhead() *extent {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.nextLocked()
	if p != nil && !g.ended && len(g.extents) < g.limits.ahead && g.next < maxAheadBytes && g.memory.TakeSpare(0) {
		g.todo = g.todo[:len(g.todo)-1]
		return p
	}
	g.growing = false
	return nil
}

// nextLocked returns the next directory to write ahead, which stays in todo; nil: there is none.
func (g *grown) nextLocked() *extent {
	for ; len(g.todo) > 0; g.todo = g.todo[:len(g.todo)-1] {
		if p := g.todo[len(g.todo)-1]; p.nids == nil {
			return p
		}
	}
	return nil
}

// path returns the path of the directory in the root. It makes no string for each directory above:
// trees may be thousands of directories deep.
func (p *extent) path() string {
	var names []string
	for ; p.up != p; p = p.up {
		names = append(names, p.entry.Name)
	}
	slices.Reverse(names)
	return strings.Join(names, "/")
}

// indexLocked returns the index of the entry that has an inode in the region of p; -1: there is none
// of that number. It searches: the inodes in the region lie in the order of the entries, and those of
// directories are not there.
func (p *extent) indexLocked(nid uint32) int {
	isThere := func(nid uint32) bool { at := erofs.RegionAt(uint64(nid)); return at > p.at && at < p.at+p.bytes }
	for from, to := 0, len(p.nids); from < to; {
		middle := from + (to-from)/2
		i := middle
		for i < to && !isThere(p.nids[i]) {
			i++
		}
		switch {
		case i == to || p.nids[i] > nid:
			to = middle
		case p.nids[i] < nid:
			from = i + 1
		default:
			return i
		}
	}
	return -1
}

// directory returns the directory of p, if that needs no waiting: a written one is kept.
func (g *grown) directory(p *extent) (*tree.Directory, bool) {
	g.mu.Lock()
	dir := p.dir
	g.mu.Unlock()
	if dir != nil {
		return dir, true
	}
	return g.source.LocalDirectory(p.entry.Digest)
}

// Redirects implements nodes: files in directories that were not written cannot have been opened.
func (g *grown) Redirects(found func(redirect string)) error {
	g.mu.Lock()
	extents := slices.Clone(g.extents)
	g.mu.Unlock()
	for _, p := range extents {
		g.mu.Lock()
		unwritten := p.nids == nil
		g.mu.Unlock()
		if unwritten {
			continue
		}
		dir, ok := g.directory(p)
		if !ok {
			return fmt.Errorf("directory %s is gone", p.entry.Digest)
		}
		for i := range dir.Len() {
			if e := dir.At(i); e.Kind == tree.File && !e.Digest.IsEmptyBlob() {
				found("/" + g.blobs.Path(e.Digest))
			}
		}
	}
	return nil
}

// Node implements nodes.
func (g *grown) Node(nid uint64) (erofs.Node, error) {
	p, err := g.find(erofs.RegionAt(nid))
	if err != nil {
		return erofs.Node{}, err
	}
	if nid == uint64(erofs.NID(p.at)) {
		return erofs.Node{Path: p.path(), Mode: unix.S_IFDIR | p.entry.Perm}, nil
	}
	g.mu.Lock()
	i := p.indexLocked(uint32(nid))
	g.mu.Unlock()
	if i < 0 {
		return erofs.Node{}, erofs.ErrNotFound
	}
	dir, ok := g.directory(p)
	if !ok || i >= dir.Len() {
		return erofs.Node{}, erofs.ErrNotFound
	}
	e := g.blobs.show(dir.At(i))
	n := erofs.Node{Path: e.Name, Mode: e.Mode, Size: e.Size, Redirect: e.Redirect}
	if above := p.path(); above != "" {
		n.Path = above + "/" + e.Name
	}
	return n, nil
}
