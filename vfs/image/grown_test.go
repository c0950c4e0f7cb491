package image

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/erofs"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// nobodyWaits fails the test if a reader would have to wait.
type nobodyWaits struct{ t *testing.T }

func (w nobodyWaits) Await(_ Asker, path string, d digest.Digest) (*tree.Directory, error) {
	w.t.Errorf("somebody waits for %q", path)
	return nil, fmt.Errorf("%s is not at hand", d)
}

func (w nobodyWaits) Fail(path string, err error) { w.t.Errorf("%q: %v", path, err) }

func (g *grown) askedFor() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.demand.all
}

// settle waits until no goroutine reads or writes ahead. The kernel is between the test and the
// reads that it caused: only the lock orders them for the race detector.
func (g *grown) settle() {
	g.askedFor()
	g.busy.Wait()
}

// grownView is a view of a new tree of some folders, with where its image is mounted.
func grownView(t *testing.T, c *Cache, src *vfstest.Source, folders int) (*grown, string) {
	t.Helper()
	return grownViewOf(t, c, src, newTree(t, src, folders), nobodyWaits{t})
}

// newTree stores a tree of some folders whose directories are local.
func newTree(t *testing.T, src *vfstest.Source, folders int) digest.Digest {
	t.Helper()
	var names []string
	for i := range folders {
		for j := range 1 + MinEntries/folders {
			names = append(names, fmt.Sprintf("new%d/sub/file%d-%d", i, i, j))
		}
	}
	root := src.Tree(t, names...)
	loadAll(t, src, root)
	return root
}

// grownViewOf is grownView of a tree that there is.
func grownViewOf(t *testing.T, c *Cache, src Source, root digest.Digest, w Waiter) (*grown, string) {
	t.Helper()
	v := c.View(root, src, folder.ProcessOwner(), Hooks{}, w)
	if v == nil || !v.Grown() {
		const reason = "the kernel mounts no image from a FUSE file"
		if os.Getenv("CI") == "" {
			t.Skip(reason)
		}
		t.Fatal(reason)
	}
	t.Cleanup(v.Release)
	return v.grafts[0].image.grown, v.Folders()[0]
}

// TestGrowsAhead counts the directories that the kernel requests. A command that reads little must
// not cause more writes than it reads; for one that reads much, most directories must be written
// before they are requested.
func TestGrowsAhead(t *testing.T) {
	c, src, _ := openCache(t)
	const folders = 100
	g, at := grownView(t, c, src, folders)
	if got := vfstest.Walk(t, filepath.Join(at, "new3")); len(got) < 3 {
		t.Errorf("shows %q", got)
	}
	g.mu.Lock()
	extents, kept := len(g.extents), len(g.kept)
	g.mu.Unlock()
	if want := 1 + folders + 1; extents != want || kept != 3 {
		t.Errorf("after a look into one folder %d directories have an extent, want %d, and %d were written", extents, want, kept)
	}
	for i := range growAfter {
		vfstest.Walk(t, filepath.Join(at, fmt.Sprintf("new%d", i)))
	}
	g.settle()
	before := g.askedFor()
	vfstest.Walk(t, at)
	if asked := g.askedFor() - before; asked > 0 {
		t.Errorf("the kernel asked for %d directories that were there", asked)
	}
	if before > 2*growAfter+3 {
		t.Errorf("the kernel asked for %d directories before others were written", before)
	}
}

// TestGrowsForNobody: a command that reads files here and there requests each of their directories
// once, and has no others written.
func TestGrowsForNobody(t *testing.T) {
	c, src, _ := openCache(t)
	const folders, files, part = 100, 100, 5
	var names []string
	for i := range folders {
		for j := range files {
			names = append(names, fmt.Sprintf("%03d/file-%[1]d-%d", i, j))
		}
	}
	root := src.Tree(t, names...)
	loadAll(t, src, root)
	g, at := grownViewOf(t, c, src, root, nobodyWaits{t})
	before := g.askedFor()
	for i := range folders / part {
		if _, err := os.Stat(filepath.Join(at, names[i*part*files+i])); err != nil {
			t.Error(err)
		}
	}
	g.settle()
	if asked := g.askedFor() - before; asked != folders/part {
		t.Errorf("the kernel asked %d times for %d directories", asked, folders/part)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	written := 0
	for _, e := range g.extents {
		if e.nids != nil {
			written++
		}
	}
	if written != 1+folders/part {
		t.Errorf("%d directories were written", written)
	}
}

// TestGrowsWhereItIsRead: with room for the rest of one folder, that is the one which is read, not
// the first one of the tree.
func TestGrowsWhereItIsRead(t *testing.T) {
	c, src, _ := openCache(t)
	const folders = 100
	var names []string
	for _, top := range []string{"a", "b", "c", "d"} {
		for i := range folders {
			names = append(names, fmt.Sprintf("%s/%03d/file-%[1]s-%[2]d", top, i))
		}
	}
	root := src.Tree(t, names...)
	loadAll(t, src, root)
	c.limits.ahead = 1 + 4 + folders + 1
	g, at := grownViewOf(t, c, src, root, nobodyWaits{t})
	for i := range growAfter {
		vfstest.Walk(t, filepath.Join(at, fmt.Sprintf("c/%03d", i)))
	}
	g.settle()
	before := g.askedFor()
	vfstest.Walk(t, filepath.Join(at, "c"))
	if asked := g.askedFor() - before; asked > 0 {
		t.Errorf("the kernel asked for %d directories beside those that it had read", asked)
	}
}

// TestGrowsAgain: directories that arrive later are written ahead, too, once a process reads near
// them.
func TestGrowsAgain(t *testing.T) {
	c, src, _ := openCache(t)
	const folders = 100
	var names []string
	for i := range folders {
		names = append(names, fmt.Sprintf("a/%03d/file-%[1]d", i), fmt.Sprintf("b/%03d/other-%[1]d", i))
	}
	root := src.Tree(t, names...)
	loadAll(t, src, root)
	g, at := grownViewOf(t, c, src, root, nobodyWaits{t})
	g.mu.Lock()
	g.limits.ahead = 0 // as if nothing else had come
	g.mu.Unlock()
	for i := range growAfter {
		vfstest.Walk(t, filepath.Join(at, fmt.Sprintf("a/%03d", i)))
	}
	g.settle()
	g.mu.Lock()
	g.limits.ahead = maxAhead
	g.mu.Unlock()
	vfstest.Walk(t, filepath.Join(at, "b/000"))
	g.settle()
	before := g.askedFor()
	vfstest.Walk(t, at)
	if asked := g.askedFor() - before; asked > 0 {
		t.Errorf("the kernel asked for %d directories that could be there", asked)
	}
}

// TestGrownNodes finds every inode of a grown image by its number.
func TestGrownNodes(t *testing.T) {
	c, src, _ := openCache(t)
	g, at := grownView(t, c, src, 5)
	for _, path := range vfstest.Walk(t, at) {
		info, err := os.Lstat(filepath.Join(at, path))
		if err != nil {
			t.Fatal(err)
		}
		n, err := g.Node(info.Sys().(*syscall.Stat_t).Ino)
		if path == "." {
			path = ""
		}
		if err != nil || n.Path != path || (n.Redirect == "") != info.IsDir() || !info.IsDir() && n.Size != info.Size() {
			t.Errorf("inode of %q is %+v, %v", path, n, err)
		}
	}
	blobs := map[string]bool{}
	src.Forget() // directories that were shown need no source
	err := g.Redirects(func(redirect string) { blobs[redirect] = true })
	if err != nil || len(blobs) != 5*(1+MinEntries/5) {
		t.Errorf("%d blobs are shown, %v", len(blobs), err)
	}
	for _, nid := range []uint64{0, 1, uint64(g.next) / 32, 1 << 40} {
		if n, err := g.Node(nid); !errors.Is(err, erofs.ErrNotFound) {
			t.Errorf("inode %d is %+v, %v", nid, n, err)
		}
	}
}

// mixed is an extent of so many entries, every tenth of which is a directory.
func mixed(entries int) *extent {
	p := &extent{at: 7 * erofs.BlockSize, bytes: int64(entries+1) * erofs.BlockSize}
	for i := range entries {
		at := p.at + int64(i+1)*64
		if i%10 == 3 || i < 20 {
			at = p.at + p.bytes + int64(i)*erofs.BlockSize
		}
		p.nids = append(p.nids, erofs.NID(at))
	}
	return p
}

// TestIndexOfEntry: each file is found by its number, and no directory, which has its own extent.
func TestIndexOfEntry(t *testing.T) {
	for _, entries := range []int{0, 1, 19, 20, 21, 22, 23, 1000} {
		p := mixed(entries)
		for i, nid := range p.nids {
			want := i
			if erofs.RegionAt(uint64(nid)) >= p.at+p.bytes {
				want = -1
			}
			if got := p.indexLocked(nid); got != want {
				t.Errorf("entry %d of %d is found at %d, want %d", i, entries, got, want)
			}
			if got := p.indexLocked(nid + 1); got >= 0 && p.nids[got] != nid+1 {
				t.Errorf("number %d is found at %d", nid+1, got)
			}
		}
		if got := p.indexLocked(erofs.NID(p.at)); got >= 0 {
			t.Errorf("the directory itself is its entry %d", got)
		}
	}
}

// BenchmarkIndexOfEntry is the cost of an open in a directory with 200,000 entries: the kernel holds
// ever more events if they come faster than they are handled.
func BenchmarkIndexOfEntry(b *testing.B) {
	p := mixed(200_000)
	for i := 0; b.Loop(); i++ {
		p.indexLocked(p.nids[i*7919%len(p.nids)])
	}
}

// failures counts the errors that a root got.
type failures struct {
	nobodyWaits
	n atomic.Int32
}

func (f *failures) Fail(string, error) { f.n.Add(1) }

// TestGrowsNotTooFarAhead: writing ahead leaves room for requested directories.
func TestGrowsNotTooFarAhead(t *testing.T) {
	c, src, _ := openCache(t)
	const folders = 100
	c.limits.ahead = 1 + folders + 1
	g, at := grownView(t, c, src, folders)
	for i := range growAfter {
		vfstest.Walk(t, filepath.Join(at, fmt.Sprintf("new%d", i)))
	}
	g.settle()
	g.mu.Lock()
	extents := len(g.extents)
	g.mu.Unlock()
	if most := c.limits.ahead + growAfter; extents > most {
		t.Errorf("%d directories have an extent, want at most %d", extents, most)
	}
	if got, want := len(vfstest.Walk(t, at)), 1+folders*(2+1+MinEntries/folders); got != want {
		t.Errorf("who asks sees %d of %d paths", got, want)
	}
}

// TestTreeWithoutRoomGrowsOnce: the next root of a tree for which a grown image had no room has
// none.
func TestTreeWithoutRoomGrowsOnce(t *testing.T) {
	c, src, _ := openCache(t)
	const folders = 5
	c.limits.all = 1 + folders + 2
	root := newTree(t, src, folders)
	w := &failures{nobodyWaits: nobodyWaits{t}}
	_, at := grownViewOf(t, c, src, root, w)
	seen := 0
	for i := range folders {
		if _, err := os.ReadDir(filepath.Join(at, fmt.Sprintf("new%d/sub", i))); err == nil {
			seen++
		}
	}
	if seen != 2 || w.n.Load() == 0 {
		t.Errorf("%d folders are shown, and the root was told of %d errors", seen, w.n.Load())
	}
	v := c.View(root, src, folder.ProcessOwner(), Hooks{}, w)
	defer v.Release()
	if v.Grown() {
		t.Error("the next root of the tree has a grown image")
	}
	c.limits.all = maxGrown
	grownView(t, c, src, folders-1) // as another tree has
}

// falseSize makes a local directory known under a digest with a wrong size.
func falseSize(t *testing.T, src *vfstest.Source, d digest.Digest, size int64) digest.Digest {
	t.Helper()
	named, err := digest.Parse(digest.SHA256, d.Hash(), size)
	must(t, err)
	src.Dirs[named] = src.Dirs[d]
	_, err = src.Directory(t.Context(), named)
	must(t, err)
	return named
}

// TestGrownShowsLargeDirectory shows a directory as large as a Source has any.
func TestGrownShowsLargeDirectory(t *testing.T) {
	c, src, _ := openCache(t)
	top := src.Dirs[newTree(t, src, 5)]
	large := falseSize(t, src, src.Tree(t, "file"), tree.MaxBytes)
	top.Directories = append(top.Directories, &repb.DirectoryNode{Name: "large", Digest: large.Proto()})
	root := src.Add(t, top)
	loadAll(t, src, root)
	_, at := grownViewOf(t, c, src, root, nobodyWaits{t})
	if got := vfstest.Walk(t, filepath.Join(at, "large")); len(got) != 2 {
		t.Errorf("shows %q", got)
	}
}

// TestFilesThatCannotBe: a file whose digest has size 0 but is not the empty blob's is not shown as
// empty by any image.
func TestFilesThatCannotBe(t *testing.T) {
	c, src, _ := openCache(t)
	none, err := digest.Parse(digest.SHA256, digest.Of(digest.SHA256, []byte("x")).Hash(), 0)
	must(t, err)
	files := []*repb.FileNode{{Name: "zero", Digest: none.Proto()}}
	top := src.Dirs[newTree(t, src, 5)]
	below := src.Add(t, &repb.Directory{Files: files})
	top.Directories = append([]*repb.DirectoryNode{{Name: "below", Digest: below.Proto()}}, top.Directories...)
	root := src.Add(t, top)
	loadAll(t, src, root)
	w := &failures{nobodyWaits: nobodyWaits{t}}
	_, at := grownViewOf(t, c, src, root, w)
	if list, err := os.ReadDir(filepath.Join(at, "below")); err == nil || w.n.Load() == 0 {
		t.Errorf("a grown image shows %v, and the root was told of %d errors", list, w.n.Load())
	}
	must(t, c.Make("", root, src))
	c.mu.Lock()
	cover := c.byPath[""][root].cover
	c.mu.Unlock()
	if dir, ok := cover.Child("below"); !ok || dir.Rest == nil {
		t.Fatalf("an image shows all of the folder: %+v", dir)
	} else if file, ok := dir.Rest.Child("zero"); !ok || file.Rest != nil {
		t.Errorf("an image shows the file: %+v", file)
	}
}

// TestOtherTreesGrow: only the kernel's refusal is for all trees.
func TestOtherTreesGrow(t *testing.T) {
	c, src, _ := openCache(t)
	grownView(t, c, src, 5) // or the kernel refuses
	root := falseSize(t, src, newTree(t, src, 6), tree.MaxBytes+1)
	v := c.View(root, src, folder.ProcessOwner(), Hooks{}, nobodyWaits{t})
	v.Release()
	if v.Grown() {
		t.Error("a tree with too large a root directory has a grown image")
	}
	grownView(t, c, src, 7)
}

// TestSmallTreeCostsNothing looks at no files of a tree that is too small for an image.
func TestSmallTreeCostsNothing(t *testing.T) {
	c, src, _ := openCache(t)
	root := src.Tree(t, "a/b", "c/d/e")
	loadAll(t, src, root)
	path := c.blobs.Path
	c.blobs.Path = func(d digest.Digest) string {
		if d != root { // which is no file
			t.Errorf("looks at %s", d)
		}
		return path(d)
	}
	v := c.View(root, src, folder.ProcessOwner(), Hooks{}, nobodyWaits{t})
	c.blobs.Path = path // the image that is learned from the root consists of files
	v.Release()
}

// TestGrownKnowsWhatItWrote has the kernel read again what it has dropped, when the source no
// longer has the directory.
func TestGrownKnowsWhatItWrote(t *testing.T) {
	c, src, _ := openCache(t)
	g, at := grownView(t, c, src, 5)
	vfstest.Walk(t, at)
	g.settle()
	src.Forget()
	g.mu.Lock()
	extents := slices.Clone(g.extents)
	g.mu.Unlock()
	for _, p := range extents {
		if b := make([]byte, erofs.BlockSize); !g.read(b, p.at, Asker{}) {
			t.Errorf("%q cannot be read", p.path())
		}
	}
}

// TestPathOfDeepDirectory asks for the path of a directory that is very deep: the path of each
// directory above it costs nothing.
func TestPathOfDeepDirectory(t *testing.T) {
	const depth = 1000
	root := &extent{}
	root.up = root
	if got := root.path(); got != "" {
		t.Errorf("the root is %q", got)
	}
	p := root
	for range depth {
		p = &extent{up: p, entry: tree.Entry{Name: "d"}}
	}
	if got, want := p.path(), strings.Repeat("/d", depth)[1:]; got != want {
		t.Errorf("the path is %q", got)
	}
	if n := testing.AllocsPerRun(10, func() { _ = p.path() }); n > depth/10 {
		t.Errorf("%g allocations for a path of %d names", n, depth)
	}
}

// waits makes every reader wait until it is closed.
type waits struct {
	nobodyWaits
	come, leave chan struct{}
}

func (w waits) Await(Asker, string, digest.Digest) (*tree.Directory, error) {
	close(w.come)
	<-w.leave
	return nil, errEnded
}

// TestEndWaitsForReaders: after the end of an image, no directory is requested.
func TestEndWaitsForReaders(t *testing.T) {
	c, src, _ := openCache(t)
	w := waits{nobodyWaits{t}, make(chan struct{}), make(chan struct{})}
	g, _ := grownViewOf(t, c, src, newTree(t, src, 5), w)
	src.Forget()
	g.mu.Lock()
	last := g.extents[len(g.extents)-1]
	g.mu.Unlock()
	read := make(chan bool, 1)
	go func() { read <- g.read(make([]byte, erofs.BlockSize), last.at, Asker{}) }()
	<-w.come
	var left atomic.Bool
	go func() {
		for ended := false; !ended; time.Sleep(10 * time.Millisecond) {
			g.mu.Lock()
			ended = g.ended
			g.mu.Unlock()
		}
		left.Store(true)
		close(w.leave)
	}()
	if g.end(); !left.Load() {
		t.Error("the image has ended, and somebody reads it")
	}
	if <-read || g.read(make([]byte, erofs.BlockSize), last.at, Asker{}) {
		t.Error("read what nobody has")
	}
}

// TestGrownEnds: after the end of an image, its content can be neither read nor kept.
func TestGrownEnds(t *testing.T) {
	c, src, _ := openCache(t)
	g, at := grownView(t, c, src, 5)
	vfstest.Walk(t, filepath.Join(at, "new1"))
	g.end()
	if _, err := os.ReadDir(filepath.Join(at, "new2")); err == nil {
		t.Error("a folder that nobody wrote is shown")
	}
	if c.files.find(g.node) != nil {
		t.Error("the file of the image is still there")
	}
}
