package image

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
	"github.com/forerunner-build/forerunner/vfs/vouch"
)

const aDay = 24 * time.Hour

// openCache makes a Cache with an image of a tree. The test is skipped where the kernel cannot, or
// fails if CI is set.
func openCache(t *testing.T) (*Cache, *vfstest.Source, digest.Digest) {
	t.Helper()
	src := vfstest.NewSource(t)
	var paths []string
	for i := range MinEntries {
		paths = append(paths, fmt.Sprintf("lib%d/file%d", i%7, i))
	}
	root := src.Tree(t, append(paths, "link -> lib1/file1")...)
	loadAll(t, src, root)
	points := t.TempDir()
	c, err := Open(Options{
		Blobs: Blobs{
			Dir: src.Dir, Path: vfstest.BlobFile,
			Parse: vfstest.ParseBlobFile,
		},
		PointDir: points, Owner: folder.ProcessOwner(), Log: zaptest.NewLogger(t, zaptest.Level(zap.ErrorLevel)),
	})
	if err == nil {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			if left, err := mounts.Below(points); err != nil || len(left) > 0 {
				t.Errorf("mounts left: %q, %v", left, err)
			}
		})
		err = c.Make("", root, src)
	}
	vfstest.Shown(t, err)
	return c, src, root
}

// loadAll makes all directories of a tree local.
func loadAll(t *testing.T, src *vfstest.Source, d digest.Digest) {
	t.Helper()
	dir, err := src.Directory(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	for i := range dir.Len() {
		if e := dir.At(i); e.Kind == tree.Dir {
			loadAll(t, src, e.Digest)
		}
	}
}

// view is a view of the image, which the function that it returns, or the end of the test,
// releases.
func view(
	t *testing.T, c *Cache, src Source, root digest.Digest, told map[digest.Digest]int,
) (v *View, release func()) {
	t.Helper()
	v = c.View(root, src, folder.ProcessOwner(), Hooks{
		Opened: func(string, tree.Entry) {}, Blob: func(d digest.Digest) { told[d]++ },
	}, nil)
	if v == nil || len(v.grafts) != 1 {
		t.Fatal("there is no image to show")
	}
	release = sync.OnceFunc(v.Release)
	t.Cleanup(release)
	return v, release
}

// TestView checks what an image shows, and what it leaves to FUSE: symlinks, whose reads would be
// invisible.
func TestView(t *testing.T) {
	c, src, root := openCache(t)
	v, _ := view(t, c, src, root, nil)
	cover := v.Cover()
	if link, ok := cover.Child("link"); !ok || cover.Len() != 1 || cover.At(0).Entry.Name != "link" || link.Rest != nil {
		t.Errorf("the image leaves %d names to others, link %t", cover.Len(), ok)
	}
	if !cover.Whole() || cover.Empty() {
		t.Errorf("whole %t, empty %t", cover.Whole(), cover.Empty())
	}
	st, err := os.Stat(filepath.Join(v.Folders()[0], "lib1/file1"))
	if err != nil || st.Size() != int64(len("content of file1")) {
		t.Errorf("a file: %+v, %v", st, err)
	}
	if c.View(root, src, folder.Owner{UID: 1, GID: 1}, Hooks{}, nil) != nil {
		t.Error("images are shown to another owner")
	}
}

// TestAllBlobsAreTold: if the opened files are unknown, all blobs are reported.
func TestAllBlobsAreTold(t *testing.T) {
	c, src, root := openCache(t)
	for name, watch := range map[string]func(v *View){
		"nobody watches":             func(*View) {},
		"nobody has the directories": func(*View) {},
		"something was lost": func(v *View) {
			v.overlay = fsid{1, 1}
			v.watch.Store(watched)
			c.watcher.mu.Lock()
			c.watcher.roots[v.overlay] = v
			c.watcher.mu.Unlock()
			c.watcher.lost()
		},
	} {
		t.Run(name, func(t *testing.T) {
			told := map[digest.Digest]int{}
			gone := &forgetful{Source: src}
			v, _ := view(t, c, gone, root, told)
			watch(v)
			gone.yes = name == "nobody has the directories"
			must(t, v.TellBlobs())
			v.Unwatch()
			if len(told) != MinEntries {
				t.Errorf("%d blobs were told, want all of them", len(told))
			}
		})
	}
	img := c.byPath[""][root]
	content := make([]byte, img.bytes)
	_, err := img.file.ReadAt(content, 0)
	must(t, err)
	_, err = img.file.WriteAt([]byte("!"), int64(bytes.LastIndex(content, []byte("overlay.redirect"))))
	must(t, err)
	v, _ := view(t, c, src, root, map[digest.Digest]int{})
	if err := v.TellBlobs(); !errors.Is(err, vouch.ErrDamaged) || c.Len() != 0 {
		t.Errorf("an image that does not say what is in it: %v, there are %d", err, c.Len())
	}
}

// A forgetful source has no directories any more, once it says so.
type forgetful struct {
	Source
	yes bool
}

// LocalDirectory implements Source.
func (f *forgetful) LocalDirectory(d digest.Digest) (*tree.Directory, bool) {
	if f.yes {
		return nil, false
	}
	return f.Source.LocalDirectory(d)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestImageIsVouchedFor: an image that was written to is known to be wrong at once, else when its
// time has come; it is dropped, and every root that shows it hears of it.
func TestImageIsVouchedFor(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(t *testing.T, img *image)
		wrong bool
	}{
		"untouched": {func(*testing.T, *image) {}, false},
		"old":       {func(_ *testing.T, img *image) { img.said.Right(time.Now().Add(-2 * aDay)) }, false},
		"written to": {func(t *testing.T, img *image) {
			spoilImage(t, img)
		}, true},
		"rotten": {func(t *testing.T, img *image) {
			spoilImage(t, img)
			if err := img.markNow(); err != nil {
				t.Fatal(err)
			}
			img.said.Right(time.Now().Add(-2 * aDay))
		}, true},
		"rotten not long ago": {func(t *testing.T, img *image) {
			spoilImage(t, img)
			if err := img.markNow(); err != nil {
				t.Fatal(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			images, src, root := openCache(t)
			before, first := view(t, images, src, root, nil)
			c.spoil(t, before.grafts[0].image)
			after, _ := view(t, images, src, root, nil)
			for _, v := range []*View{after, before} {
				if err := v.Vouch(t.Context(), time.Now().Add(-aDay)); errors.Is(err, vouch.ErrDamaged) != c.wrong || !c.wrong && err != nil {
					t.Error(err)
				}
			}
			if got := images.Len(); got != map[bool]int{true: 0, false: 1}[c.wrong] {
				t.Errorf("there are %d images", got)
			}
			first()
		})
	}
}

// spoilImage flips a bit of the image.
func spoilImage(t *testing.T, img *image) {
	t.Helper()
	var b [1]byte
	_, err := img.file.ReadAt(b[:], img.bytes/2)
	if err == nil {
		b[0] ^= 1
		_, err = img.file.WriteAt(b[:], img.bytes/2)
	}
	if err != nil {
		t.Fatal(err)
	}
}
