package image

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/budget"
	"github.com/forerunner-build/forerunner/vfs/erofs"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// linksOf is a tree of few messages that has very many symlinks with long targets: each directory
// is at many paths.
func linksOf(t *testing.T, src *vfstest.Source) digest.Digest {
	t.Helper()
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("link%03d -> %s", i, strings.Repeat("t", 4000)))
	}
	root := src.Repeat(t, src.Tree(t, names...), 200)
	loadAll(t, src, root)
	return root
}

// TestImageOfLinks: an image keeps the entries that it does not show. A tree with too many of them
// gets no image, and is not tried again.
func TestImageOfLinks(t *testing.T) {
	c, src, _ := openCache(t)
	root := linksOf(t, src)
	s := &survey{images: c, source: src, small: map[digest.Digest]int{}, left: maxVisits}
	s.visit("", root)
	s.visit("", root)
	if len(s.wanted) == 0 || s.wanted[0].digest != root {
		t.Fatalf("images are wanted of %v", s.wanted)
	}
	before := c.Len()
	if err := c.Make("", root, src); !errors.Is(err, erofs.ErrTooLarge) || c.Len() != before {
		t.Errorf("there is an image of it: %v, %d", err, c.Len()-before)
	}
	s.wanted = nil
	if s.visit("", root); len(s.wanted) > 0 && s.wanted[0].digest == root {
		t.Error("it is wanted again")
	}
}

// TestHiddenBelow counts every folder on the way to an entry that an image does not show.
func TestHiddenBelow(t *testing.T) {
	const depth = 100
	src := vfstest.NewSource(t)
	root := src.Tree(t, strings.Repeat("f/", depth)+"link -> x")
	loadAll(t, src, root)
	dir, _ := src.LocalDirectory(root)
	blobs := &Blobs{Path: vfstest.BlobFile}
	s := &subtree{blobs: blobs, lookup: src.LocalDirectory, left: maxImageEntries, most: maxHidden}
	if s.directory(dir, 0); s.hidden < (depth+1)*hiddenBytes {
		t.Errorf("it counts %d bytes", s.hidden)
	}
	s.hidden, s.most = 0, depth*hiddenBytes
	if s.directory(dir, 0); s.hidden <= s.most {
		t.Errorf("%d bytes are not too many", s.hidden)
	}
}

// TestHiddenOfAll limits the hidden entries of all images together, including replaced images that
// a root still shows.
func TestHiddenOfAll(t *testing.T) {
	c := &Cache{byPath: map[string]map[digest.Digest]*image{}, mostHidden: 100, log: zap.NewNop()}
	add := func(path string, hidden int64) (*image, int, error) {
		img := &image{path: path, hidden: hidden, point: filepath.Join(t.TempDir(), "image", "lower")}
		gone, err := c.add(img)
		if c.hidden > c.mostHidden {
			t.Errorf("with %q they keep %d bytes", path, c.hidden)
		}
		return img, len(gone), err
	}
	for i := range 10 {
		if _, gone, err := add(fmt.Sprint(i), 30); err != nil || (gone > 0) != (i >= 3) {
			t.Errorf("image %d: %d are closed for it, %v", i, gone, err)
		}
	}
	if _, gone, err := add("plain", 0); gone > 0 || err != nil {
		t.Errorf("%d are closed for one that shows everything, %v", gone, err)
	}
	used := c.use("9", digest.Digest{})
	large, gone, err := add("large", 70)
	if gone != 2 || err != nil || c.Len() != 3 || c.use("plain", digest.Digest{}) == nil {
		t.Errorf("%d are closed for a large one, %d are left, %v", gone, c.Len(), err)
	}
	c.use("large", digest.Digest{})
	if _, gone, err := add("9", 1); gone > 0 || !errors.Is(err, errHidden) {
		t.Errorf("%d are closed for one that there is no memory for, %v", gone, err)
	}
	c.mu.Lock()
	c.retireLocked(used, nil)
	c.mu.Unlock()
	if _, _, err := add("9", 1); !errors.Is(err, errHidden) {
		t.Errorf("what a root still shows is not counted: %v", err)
	}
	c.release(used)
	c.release(large)
	if _, gone, err := add("9", 30); gone > 0 || err != nil {
		t.Errorf("%d are closed for one that there is memory for, %v", gone, err)
	}
}

// complaints gathers what a Waiter is told.
type complaints struct {
	nobodyWaits
	mu  sync.Mutex
	all []error // guarded by mu
}

func (c *complaints) Fail(_ string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, err)
}

func (c *complaints) first() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) == 0 {
		return nil
	}
	return c.all[0]
}

// TestGrownWithoutMemory has a command walk through a tree that has far more directories than there
// is memory for: it gets an error that says why, and the next root of the tree has no image.
func TestGrownWithoutMemory(t *testing.T) {
	c, src, _ := openCache(t)
	const most = 1 << 20
	c.memory = budget.New(most, 2)
	root := src.Repeat(t, src.Repeat(t, src.Tree(t, "file"), 300), 300)
	loadAll(t, src, root)
	told := &complaints{nobodyWaits: nobodyWaits{t}}
	_, at := grownViewOf(t, c, src, root, told)
	seen := 0
	err := filepath.WalkDir(at, func(path string, _ os.DirEntry, _ error) error {
		if filepath.Base(path) == "file" {
			seen++
		}
		return nil
	})
	if used := c.memory.Used(); err != nil || used > most || seen < 500 || seen > 50_000 {
		t.Errorf("%v; %d files are seen, and %d bytes used of %d", err, seen, used, most)
	}
	if err := told.first(); !errors.Is(err, tree.ErrTooLarge) {
		t.Errorf("the action is told %v", err)
	}
	if v := c.View(root, src, folder.ProcessOwner(), Hooks{}, told); v.Grown() {
		t.Error("the next root has an image that grows, too")
		v.Release()
	}
}

// TestGrownAmongOthers: a root that lacks memory because others have it fails, but the next one of
// its tree has an image again.
func TestGrownAmongOthers(t *testing.T) {
	c, src, _ := openCache(t)
	const others = 20
	c.memory = budget.New(1<<20, others+1)
	root := src.Repeat(t, src.Repeat(t, src.Tree(t, "file"), 300), 300)
	loadAll(t, src, root)
	var neighbours []*budget.Holder
	for range others {
		h := c.memory.Holder()
		for h.Take(1 << 8) {
		}
		neighbours = append(neighbours, h)
	}
	told := &complaints{nobodyWaits: nobodyWaits{t}}
	_, at := grownViewOf(t, c, src, root, told)
	_, err := os.ReadDir(filepath.Join(at, "299"))
	if !errors.Is(told.first(), tree.ErrTooLarge) || err == nil {
		t.Errorf("the root is told %v, the command %v", told.first(), err)
	}
	for _, h := range neighbours {
		h.Close()
	}
	if c.unfit.Has(root) {
		t.Fatal("the tree is unfit for an image")
	}
	_, at = grownViewOf(t, c, src, root, nobodyWaits{t})
	if list, err := os.ReadDir(filepath.Join(at, "299")); len(list) != 300 || err != nil {
		t.Errorf("the next root shows %d folders, %v", len(list), err)
	}
}

// TestFloodOfOpens has a command open files faster than the watcher handles events. The watcher
// must stop watching, so that others do not wait, and everything that the command could read must
// count as read.
func TestFloodOfOpens(t *testing.T) {
	c, _, _ := openCache(t)
	at := t.TempDir() // in the place of an overlay
	if err := unix.Mount("tmpfs", at, "tmpfs", 0, ""); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	v := &View{cache: c}
	if err := c.watcher.watch(v, at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Unwatch)
	const files = 300
	for i := range files {
		if err := os.WriteFile(filepath.Join(at, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	open := func(processes int) { // the kernel joins openings of one file by one process
		out, err := exec.Command("sh", "-c", fmt.Sprintf("cd %s; for i in $(seq %d); do (for f in *; do : <$f; done) & done; wait", at, processes)).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	<-c.watcher.turn
	c.watcher.now = func() time.Time { return time.Time{} } // however slow the machine is
	c.watcher.turn <- struct{}{}
	open(10)
	if c.watcher.drain(); v.blind.Load() || v.left {
		t.Fatal("a few files are too many")
	}
	<-c.watcher.turn // no event is handled meanwhile
	open(mostEvents/files + 10)
	c.watcher.turn <- struct{}{}
	if c.watcher.drain(); !v.blind.Load() || !v.left {
		t.Fatalf("not all is known that was opened: %t; it is told no more: %t", v.blind.Load(), v.left)
	}
	<-c.watcher.turn
	open(1)
	if due, err := unix.IoctlGetInt(c.watcher.fd, unix.TIOCINQ); due != 0 || err != nil {
		t.Errorf("%d bytes of events are due after that, %v", due, err)
	}
	c.watcher.turn <- struct{}{}
}

// TestSeesAll: whether more can have been read in images than was told.
func TestSeesAll(t *testing.T) {
	for _, c := range []struct {
		grafts []*graft
		watch  uint32
		blind  bool
		want   bool
	}{
		{nil, unwatched, false, true},
		{[]*graft{{}}, unwatched, false, false},
		{[]*graft{{}}, watched, false, true},
		{[]*graft{{}}, watched, true, false},
		{[]*graft{{}}, watchOver, false, true},
		{[]*graft{{}}, watchOver, true, false},
	} {
		v := &View{grafts: c.grafts}
		v.watch.Store(c.watch)
		v.blind.Store(c.blind)
		if got := v.SeesAll(); got != c.want {
			t.Errorf("%d images, state %d, blind %t: %t", len(c.grafts), c.watch, c.blind, got)
		}
	}
}
