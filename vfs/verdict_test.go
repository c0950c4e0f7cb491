package vfs

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// told collects what OnBlob is told.
type told struct {
	mu    sync.Mutex
	blobs map[digest.Digest]int
}

func (c *told) hook(d digest.Digest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.blobs == nil {
		c.blobs = map[digest.Digest]int{}
	}
	c.blobs[d]++
}

// assert fails the test unless these are the blobs that were told.
func (c *told) assert(t *testing.T, want ...digest.Digest) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range want {
		if c.blobs[d] == 0 {
			t.Errorf("%s was not told", d)
		}
	}
	if len(c.blobs) != len(want) {
		t.Errorf("%d blobs were told, want %d", len(c.blobs), len(want))
	}
}

// TestBlobsAreTold: every way to the bytes of a blob is told, and no other blob.
func TestBlobsAreTold(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		root := src.Tree(t, "read", "copied", "moved", "returned", "truncated", "looked at", "dir/in")
		var c told
		r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnBlob: c.hook})
		at := func(p string) string { return filepath.Join(r.Path(), p) }
		c.assert(t)
		mustRead(t, at("read"))
		vfstest.AppendMore(t, at("copied"))
		_, err := os.Stat(at("looked at"))
		for _, err := range []error{err, os.Truncate(at("truncated"), 3), os.Rename(at("moved"), at("dir/moved"))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		want := []digest.Digest{src.Find(t, root, "read"), src.Find(t, root, "copied"), src.Find(t, root, "truncated")}
		c.assert(t, want...)
		for _, p := range []string{"returned", "dir/moved"} {
			if _, ok := r.Unchanged(p); !ok {
				t.Errorf("%s is not unchanged", p)
			}
		}
		c.assert(t, append(want, src.Find(t, root, "returned"), src.Find(t, root, "moved"))...)
		if err := r.Vouch(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// imageRoot is a root that shows an image, which f makes.
func imageRoot(t *testing.T, f *FS, src *vfstest.Source, name string, c *told) (*Root, digest.Digest) {
	t.Helper()
	root := src.Tree(t, toolchain("sdk")...)
	if f.Images() == 0 {
		learn(t, f, src, lookAround(t), root)
	}
	r := openRoot(t, f, RootSpec{Name: name, Digest: root, Source: src, OnBlob: c.hook})
	if imagesOf(r) != 1 {
		t.Fatalf("%d images in the root", imagesOf(r))
	}
	return r, root
}

// TestImageBlobsAreTold: Vouch returns when all opened blobs have been reported. If the opened ones
// are unknown, it reports all.
func TestImageBlobsAreTold(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	var c told
	r, root := imageRoot(t, f, src, "first", &c)
	mustRead(t, filepath.Join(r.Path(), "sdk/lib1/file1"))
	if err := r.Vouch(t.Context()); err != nil {
		t.Error(err)
	}
	c.assert(t, src.Find(t, root, "sdk/lib1/file1"))
}
