package fuse

import (
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// TestLayer is about a layer alone, without an overlay. Programs look at it: this process must not.
func TestLayer(t *testing.T) {
	src := vfstest.NewSource(t)
	root := src.Tree(t, "dir/file", "dir/other", "unread/file")
	driver, err := NewDriver(zaptest.NewLogger(t), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var read []string
	blobs := map[digest.Digest]bool{}
	point := filepath.Join(t.TempDir(), "layer")
	l := driver.NewLayer(t.Context(), Options{
		Name: "alone", Folder: point, Digest: root, Source: src, Owner: folder.ProcessOwner(), Inodes: NewInodes(),
		Hooks: Hooks{
			Read: func(n *Node) {
				mu.Lock()
				defer mu.Unlock()
				if !slices.Contains(read, n.Path()) {
					read = append(read, n.Path())
				}
			},
			Blob: func(d digest.Digest) {
				mu.Lock()
				defer mu.Unlock()
				blobs[d] = true
			},
			Stall: func(time.Duration) {},
		},
	})
	hide := sync.OnceValue(l.Hide)
	t.Cleanup(func() { _ = hide() })
	vfstest.Shown(t, l.Show(t.Context()))
	at := func(p string) string { return filepath.Join(l.InputFolder(), p) }
	out, err := exec.Command("cat", at("dir/file"), at("dir/other")).CombinedOutput()
	if string(out) != "content of filecontent of other" || err != nil {
		t.Errorf("read %q, %v", out, err)
	}
	if out, err := exec.Command("cat", at("absent")).CombinedOutput(); err == nil {
		t.Errorf("read of what is not there: %q", out)
	}
	if err := exec.Command("touch", at("new")).Run(); err == nil {
		t.Error("a file was made in a layer that is read-only")
	}
	src.Fail(src.Find(t, root, "unread"), errors.New("nobody has it"))
	if err := exec.Command("ls", at("unread")).Run(); err == nil || l.Err() == nil {
		t.Errorf("a directory that nobody has: %v, %v", err, l.Err())
	}
	if err := hide(); err != nil {
		t.Error(err)
	}
	if want := []string{"", "dir", "dir/file", "dir/other"}; !slices.Equal(read, want) || len(blobs) != 2 {
		t.Errorf("read %q of %d blobs, want %q", read, len(blobs), want)
	}
	if there, absent := l.Lookups(); there < 4 || absent < 1 {
		t.Errorf("%d and %d lookups", there, absent)
	}
	if left, err := mounts.Below(filepath.Dir(point)); err != nil || len(left) > 0 {
		t.Errorf("mounts left: %q, %v", left, err)
	}
}

// given is a Cover that a test makes up.
type given struct {
	whole bool
	list  []Covered
}

func (g given) Whole() bool      { return g.whole }
func (g given) Len() int         { return len(g.list) }
func (g given) At(i int) Covered { return g.list[i] }

func (g given) Child(name string) (Covered, bool) {
	i := slices.IndexFunc(g.list, func(c Covered) bool { return c.Entry.Name == name })
	if i < 0 {
		return Covered{}, false
	}
	return g.list[i], true
}

// TestShown checks which names remain for FUSE in a directory of which images show a part.
func TestShown(t *testing.T) {
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a/1", "b/2", "c", "link -> c")
	dir, err := src.Directory(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(name string) tree.Entry {
		e, ok := dir.Find(name)
		if !ok {
			t.Fatal(name)
		}
		return e
	}
	all := given{whole: true}
	for name, c := range map[string]struct {
		shown shown
		want  []string
	}{
		"no image":               {shown{dir: dir}, []string{"a", "b", "c", "link"}},
		"an image of a":          {shown{dir, given{list: []Covered{{entry("a"), all}}}}, []string{"b", "c", "link"}},
		"an image of all":        {shown{cover: all}, nil},
		"an image but for links": {shown{cover: given{true, []Covered{{Entry: entry("link")}}}}, []string{"link"}},
	} {
		var listed, found []string
		for i := range c.shown.len() {
			if at, ok := c.shown.at(i); ok {
				listed = append(listed, at.Entry.Name)
			}
		}
		for i := range dir.Len() {
			if e, _, ok := c.shown.find(dir.Name(i)); ok {
				found = append(found, e.Name)
			}
		}
		if !slices.Equal(listed, c.want) || !slices.Equal(found, c.want) {
			t.Errorf("%s: %q are listed, %q found, want %q", name, listed, found, c.want)
		}
	}
}
