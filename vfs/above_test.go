package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/image"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// falseBlobs lists the paths of inputs below a folder that are called like the blobs of files of
// toolchain and libraries, and have another content.
func falseBlobs(t *testing.T, src *vfstest.Source, below string) (paths []string) {
	t.Helper()
	for i := range 32 {
		path := vfstest.BlobFile(src.Blob(t, fmt.Sprint("content of file", i)))
		paths = append(paths, below+strings.TrimPrefix(path, vfstest.BlobFolder))
	}
	return paths
}

// TestInputsAreNoBlobs: overlayfs looks for the data of an image's files in the layers below the
// image, too. An input at the path of a blob must not be taken for it, whatever image a root shows.
func TestInputsAreNoBlobs(t *testing.T) {
	const top = vfstest.BlobFolder
	src := vfstest.NewSource(t)
	openImageFS(t, src, nil) // or skip
	plain := openFS(t, Options{})
	wrong := falseBlobs(t, src, top)
	large := slices.Clone(wrong) // enough for an image of its own
	for i := range image.MinEntries {
		large = append(large, fmt.Sprintf("%s/more/file%d", top, i))
	}
	inputs := []struct {
		name  string
		paths []string
		shown bool // images are above these inputs
	}{
		{"others", []string{"other/file"}, true},
		{"a folder", wrong, false},
		{"a large folder", large, false},
		{"an empty folder", []string{top + "/"}, false},
		{"a file", []string{top}, false},
		{"a symlink", append(falseBlobs(t, src, "other"), top+" -> other"), false},
		{"a symlink to nothing", []string{top + " -> nowhere"}, false},
		{"a nested folder", falseBlobs(t, src, "nested/"+top), true},
		{"similar names", append(falseBlobs(t, src, top+"x"), top[:5]), true},
	}
	folder := append(toolchain("x/sdk"), falseBlobs(t, src, "x/sdk/"+top)...)
	for images, of := range map[string][]string{
		"a folder":             folder,
		"a part of a folder":   append([]string{"x/sdk/lib0/link -> file0", "x/sdk/link -> lib1/file1"}, folder...),
		"small folders":        libraries(),
		"large and small ones": append(libraries(), folder...),
	} {
		t.Run(images, func(t *testing.T) {
			f := openFS(t, Options{Blobs: blobFolder(src, nil), Ready: 2})
			rootOf := func(paths ...string) digest.Digest { return local(t, src, src.Tree(t, append(paths, of...)...)) }
			learn(t, f, src, lookAround(t), rootOf("a"), rootOf("b"))
			for i, in := range inputs {
				compare(t, f, plain, src, RootSpec{Name: in.name, Digest: rootOf(append(in.paths, fmt.Sprint("own", i))...)}, in.shown)
			}
		})
	}
	for _, in := range inputs {
		t.Run("the root/"+in.name, func(t *testing.T) {
			f := openFS(t, Options{Blobs: blobFolder(src, nil)})
			root := local(t, src, src.Tree(t, append(in.paths, folder...)...))
			if in.shown {
				learn(t, f, src, lookAround(t), root)
			}
			for i := range 3 {
				compare(t, f, plain, src, RootSpec{Name: fmt.Sprint(i), Digest: root}, in.shown)
			}
		})
	}
}

// compare opens a root of f, and compares it with one that has no images. Shown says whether it must
// have some, or must have none.
func compare(t *testing.T, f, plain *FS, src *vfstest.Source, spec RootSpec, shown bool) {
	t.Helper()
	spec.Source = src
	r, p := openRoot(t, f, spec), openRoot(t, plain, spec)
	if n := imagesOf(r); n > 0 != shown || shown && r.images.Grown() {
		t.Errorf("%s: the root has %d images", spec.Name, n)
	}
	if got, want := describe(t, r.Path()), describe(t, p.Path()); !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", spec.Name, strings.Join(without(got, want), "\n"), strings.Join(without(want, got), "\n"))
	}
	if err := errors.Join(r.Err(), r.Close(), p.Close()); err != nil {
		t.Error(err)
	}
	if f.ready != nil {
		spareRoots(f)
	}
}

// TestUnknownInputsHaveNoImages: what the input root has must be known before it has images.
func TestUnknownInputsHaveNoImages(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	root := src.Tree(t, toolchain("sdk")...)
	learn(t, f, src, lookAround(t), root)
	src.Forget()
	for i, want := range []bool{false, true} {
		r := openRoot(t, f, RootSpec{Name: fmt.Sprint(i), Digest: root, Source: src})
		if imagesOf(r) > 0 != want {
			t.Errorf("root %d has %d images", i, imagesOf(r))
		}
		vfstest.Walk(t, r.Path())
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFUSEIsNotAsked: FUSE is asked for names in directories that it shows, at least in part, and
// for no others.
func TestFUSEIsNotAsked(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	sdk := append(toolchain("x/sdk"), "x/sdk/lib1/link -> file1")
	learn(t, f, src, lookAround(t), src.Tree(t, append(sdk, "x/a")...), src.Tree(t, append(sdk, "x/b")...))
	root := local(t, src, src.Tree(t, append(sdk, "x/c", "own/file")...))
	for _, c := range []struct {
		do     func(at func(...string) string) error
		there  int64
		absent int64
		reads  []string
	}{
		{
			// x and x/sdk are there: of both, FUSE has a part. What it does not have is the folder of the
			// blobs. It is not asked for lib0, of which the image has all.
			func(at func(...string) string) error { _, err := os.Lstat(at("x", "sdk", "lib0", "file0")); return err },
			2, 1,
			[]string{"directory ", "directory x"},
		},
		{
			func(at func(...string) string) error { _, err := os.ReadDir(at("x")); return err },
			1, 0,
			[]string{"directory ", "directory x"},
		},
		{
			func(at func(...string) string) error { _, err := os.ReadDir(at("x", "sdk", "lib0")); return err },
			2, 0,
			[]string{"directory ", "directory x", "directory x/sdk", "directory x/sdk/lib0"},
		},
	} {
		var seen readHook
		r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnFirstRead: seen.hook})
		if imagesOf(r) != 1 {
			t.Fatalf("%d images", imagesOf(r))
		}
		if err := c.do(func(names ...string) string { return filepath.Join(append([]string{r.Path()}, names...)...) }); err != nil {
			t.Error(err)
		}
		if s := r.Stats(); s.Lookups != c.there || s.Absent != c.absent || !slices.Equal(seen.list(), c.reads) {
			t.Errorf("FUSE was asked for %d and %d names, want %d and %d; reads %q, want %q", s.Lookups, s.Absent, c.there, c.absent, seen.list(), c.reads)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}
