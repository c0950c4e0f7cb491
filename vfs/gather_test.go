package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/image"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// libraries lists the paths of folders that are large enough for an image only together.
func libraries(own ...string) (paths []string) {
	const folders = 16
	for i := range folders {
		for j := range image.MinEntries / folders {
			paths = append(paths, fmt.Sprintf("lib%02d/file%d", i, j))
		}
	}
	return append(append(paths, "lib03/sub/file", "lib04/tool!", "lib05/link -> file1"), own...)
}

// gathered has roots of libraries seen, and waits for their image.
func gathered(t *testing.T, f *FS, src *vfstest.Source) {
	t.Helper()
	learn(t, f, src, lookAround(t), src.Tree(t, libraries("a")...), src.Tree(t, libraries("b")...))
}

// TestGatheredImage: small folders that several roots have are shown by one image, as long as all
// of them are unchanged.
func TestGatheredImage(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	plain := openFS(t, Options{})
	gathered(t, f, src)
	if n := f.Images(); n != 1 {
		t.Fatalf("%d images", n)
	}
	for name, c := range map[string]struct {
		paths  []string
		images int
	}{
		"a new file beside them":   {libraries("c", "other/d", "lib/e"), 1},
		"a new file in one":        {libraries("lib02/new"), 0},
		"one is gone":              {libraries()[image.MinEntries/16:], 0},
		"one has another file":     {append(libraries()[1:], "lib00/file0!"), 0},
		"all of them below a name": {[]string{"x/y"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := local(t, src, src.Tree(t, c.paths...))
			r := openRoot(t, f, RootSpec{Name: "gathered", Digest: root, Source: src})
			n := imagesOf(r)
			if n > 0 && r.images.Grown() { // its own
				n = 0
			}
			if n != c.images {
				t.Errorf("%d images are shown, want %d", n, c.images)
			}
			want := describe(t, openRoot(t, plain, RootSpec{Name: "plain", Digest: root, Source: src}).Path())
			if got := describe(t, r.Path()); !slices.Equal(got, want) {
				t.Errorf("got\n%q\nwant\n%q", got, want)
			}
			if err := r.Err(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestGatheredImageReads: reads in gathered folders are reported, and the kernel asks FUSE for no
// name below them.
func TestGatheredImageReads(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	gathered(t, f, src)
	root := local(t, src, src.Tree(t, libraries("c")...))
	var seen readHook
	blobs := map[digest.Digest]bool{}
	r := openRoot(t, f, RootSpec{
		Digest: root, Source: src, OnFirstRead: seen.hook, OnBlobRead: func(d digest.Digest) { blobs[d] = true },
	})
	if imagesOf(r) != 1 {
		t.Fatal("the root shows no image")
	}
	before := r.Stats()
	for _, p := range []string{"lib00/file1", "lib03/sub/file", "lib07/file3"} {
		if _, err := os.ReadFile(filepath.Join(r.Path(), p)); err != nil {
			t.Error(err)
		}
	}
	s := r.Stats()
	if there, absent := s.Lookups-before.Lookups, s.Absent-before.Absent; there != 0 || absent != 1 {
		t.Errorf("the kernel asked for %d and %d names, want the folder of the blobs only, for FUSE to say that it has none", there, absent)
	}
	if _, err := os.ReadFile(filepath.Join(r.Path(), "c")); err != nil {
		t.Error(err)
	}
	want := []string{
		"directory ", "directory lib00", "directory lib03", "directory lib03/sub", "directory lib07",
		"file c", "file lib00/file1", "file lib03/sub/file", "file lib07/file3",
	}
	if s = r.Stats(); s.FilesRead != 4 {
		t.Errorf("%+v", s)
	}
	if got := seen.list(); !slices.Equal(got, want) {
		t.Errorf("reads %q, want %q", got, want)
	}
	if d := src.Find(t, root, "lib07/file3"); !blobs[d] || len(blobs) != 3 {
		t.Errorf("%d blobs were reported", len(blobs))
	}
}

// TestNoGatheredImages: the option turns them off.
func TestNoGatheredImages(t *testing.T) {
	src := vfstest.NewSource(t)
	openImageFS(t, src, nil) // or skip
	f := openFS(t, Options{Blobs: blobFolder(src, nil), DisableGathered: true})
	for i := range 3 {
		r := openRoot(t, f, RootSpec{Name: fmt.Sprint(i), Digest: src.Tree(t, libraries(fmt.Sprint("own", i))...), Source: src})
		lookAround(t)(r.Path())
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// A large folder is learned from after these roots.
	large := local(t, src, src.Tree(t, toolchain("sdk")...))
	waitUntil(t, "the image of the large folder", func() bool {
		r, err := f.NewRoot(t.Context(), RootSpec{Name: "large", Digest: large, Source: src})
		if err != nil {
			t.Fatal(err)
		}
		shown := imagesOf(r) > 0 && !r.images.Grown()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		return shown
	})
	if n := f.Images(); n != 1 {
		t.Errorf("%d images, want that of the large folder alone", n)
	}
}
