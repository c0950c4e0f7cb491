package copied

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// opens are the reads that a root reports.
type opens struct {
	mu    sync.Mutex
	paths []string
}

func (o *opens) read(path string, _ tree.Entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.paths = append(o.paths, path)
}

func newCopier(t *testing.T) *Copier {
	t.Helper()
	c, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// treeOf returns the tree of these paths.
func treeOf(t *testing.T, src *vfstest.Source, paths ...string) *Tree {
	t.Helper()
	root := src.Tree(t, paths...)
	src.Know(t, root)
	got, ok := Read(src, root, 1<<20)
	if !ok {
		t.Fatal("the tree cannot be read")
	}
	return got
}

func copyTo(t *testing.T, c *Copier, from *Tree, o *opens) (*Root, string) {
	t.Helper()
	in := place(t.TempDir())
	r, err := c.Copy(from, in, o.read)
	if err != nil {
		t.Fatal(err)
	}
	return r, in.Path()
}

// A place is an empty folder of the process.
type place string

func (p place) Path() string      { return string(p) }
func (place) Owner() folder.Owner { return folder.ProcessOwner() }
func (place) Has(string) bool     { return false }

func readAll(t *testing.T, dir string, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if _, err := os.ReadFile(filepath.Join(dir, p)); err != nil {
			t.Fatal(err)
		}
	}
}

// inGroup is how many watches the kernel has for c.
func inGroup(t *testing.T, c *Copier) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprint("/proc/self/fdinfo/", c.group))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(b), "inotify wd:")
}

// TestManyOpensAreFewEvents: however often an action opens a file, the group's queue, which all
// roots share, has two events of it. A file that is gone leaves no watch.
func TestManyOpensAreFewEvents(t *testing.T) {
	c := newCopier(t)
	src := vfstest.NewSource(t)
	var busy, quiet opens
	b, busyDir := copyTo(t, c, treeOf(t, src, "one", "two"), &busy)
	q, quietDir := copyTo(t, c, treeOf(t, src, "dir/file"), &quiet)
	for range 20_000 { // more than fs.inotify.max_queued_events
		readAll(t, busyDir, "one", "two")
	}
	readAll(t, quietDir, "dir/file")
	if !b.Reads() || !q.Reads() {
		t.Error("not all reads are known")
	}
	if want := []string{"", "one", "two"}; !slices.Equal(busy.paths, want) {
		t.Errorf("read %q, want %q", busy.paths, want)
	}
	if want := []string{"dir", "dir/file"}; !slices.Equal(slices.Sorted(slices.Values(quiet.paths)), want) {
		t.Errorf("read %q, want %q", quiet.paths, want)
	}
	other, dir := copyTo(t, c, treeOf(t, src, "unread", "dir/unread"), &opens{})
	for _, r := range []*Root{b, q, other} {
		r.Leave()
	}
	for _, d := range []string{busyDir, quietDir, dir} {
		if err := os.RemoveAll(d); err != nil {
			t.Fatal(err)
		}
	}
	other.Reads()
	if len(c.watched) != 0 || len(c.open) != 0 || inGroup(t, c) != 0 {
		t.Errorf("left: %d watches, %d roots, %d watches in the kernel", len(c.watched), len(c.open), inGroup(t, c))
	}
}

// TestLostEvents: if the kernel could not queue an event, reads may be missing, and are said to. A
// root whose files cannot be watched is none.
func TestLostEvents(t *testing.T) {
	c := newCopier(t)
	src := vfstest.NewSource(t)
	r, dir := copyTo(t, c, treeOf(t, src, "one", "two"), &opens{})
	if !r.Reads() {
		t.Error("reads are missing at first")
	}
	c.mu.Lock()
	c.noteLocked(-1, unix.IN_Q_OVERFLOW)
	c.mu.Unlock()
	for range 2 {
		if r.Reads() {
			t.Error("an overflow is not noticed, or forgotten")
		}
	}
	if later, _ := copyTo(t, c, treeOf(t, src, "one"), &opens{}); !later.Reads() {
		t.Error("an overflow concerns a later root")
	}
	if err := os.Remove(filepath.Join(dir, "two")); err != nil {
		t.Fatal(err)
	}
	partly := &Root{copier: c, tree: treeOf(t, src, "one", "two"), dir: dir}
	if err := c.watch(partly); !errors.Is(err, unix.ENOENT) {
		t.Errorf("a file without a watch: %v", err)
	}
}

// TestRootsAtOnce is for the race detector: each root reports its own reads, each once.
func TestRootsAtOnce(t *testing.T) {
	c := newCopier(t)
	src := vfstest.NewSource(t)
	from := treeOf(t, src, "a/one", "a/two", "three")
	var g sync.WaitGroup
	top := t.TempDir()
	for i := range 8 {
		g.Go(func() {
			for j := range 50 {
				var seen opens
				again := *from
				again.entries = slices.Clone(from.entries)
				in := place(filepath.Join(top, fmt.Sprint(i, "-", j)))
				err := os.Mkdir(in.Path(), 0o755)
				var r *Root
				if err == nil {
					r, err = c.Copy(&again, in, seen.read)
				}
				if err != nil {
					t.Error(err)
					return
				}
				var others sync.WaitGroup
				others.Go(func() { r.Reads() })
				_, err = os.ReadFile(filepath.Join(in.Path(), "a/two"))
				others.Wait()
				if !r.Reads() || err != nil {
					t.Error("not all reads are known", err)
				}
				r.Leave()
				if got := slices.Sorted(slices.Values(seen.paths)); !slices.Equal(got, []string{"a", "a/two"}) {
					t.Errorf("read %q", got)
				}
				if err := os.RemoveAll(in.Path()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
}

// TestEndlessTrees are not read: one that contains a folder very often, and one that contains
// itself, which can only come from a Source that lies.
func TestEndlessTrees(t *testing.T) {
	src := vfstest.NewSource(t)
	root := src.Tree(t, "file")
	for range 60 {
		root = src.Repeat(t, root, 2)
		if _, err := src.Directory(t.Context(), root); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := Read(src, root, 1<<20); ok {
		t.Error("a tree of 2^60 files is read")
	}
	root = digest.Of(digest.SHA256, []byte("not its digest"))
	src.Dirs[root] = &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "again", Digest: root.Proto()}}}
	if _, err := src.Directory(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	if _, ok := Read(src, root, 1<<20); ok {
		t.Error("a tree without end is read")
	}
}
