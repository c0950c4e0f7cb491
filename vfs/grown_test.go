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
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// atHand loads the directories at these paths into the source, as earlier reads would have.
func atHand(t *testing.T, src *vfstest.Source, root digest.Digest, paths ...string) {
	t.Helper()
	for _, p := range append(paths, "") {
		d := root
		if p != "" {
			d = src.Find(t, root, p)
		}
		if _, err := src.Directory(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

func libs(below string) (paths []string) {
	for i := range 7 {
		paths = append(paths, fmt.Sprintf("%s/lib%d", below, i))
	}
	return append(paths, below, below+"/bin", below+"/empty")
}

// needGrown skips the test where the kernel mounts no image from a FUSE file.
func needGrown(t *testing.T, r *Root) {
	t.Helper()
	if imagesOf(r) == 1 && r.images.Grown() {
		return
	}
	const reason = "the first root of a tree has no metadata image"
	if os.Getenv("CI") != "" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}

// TestFirstRootHasImage compares the first root of a tree whose directories are local with a root
// without images. The same reads must be reported.
func TestFirstRootHasImage(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	plain := openFS(t, Options{})
	root := src.Tree(t, append(toolchain("sdk"), "sdk/lib1/link -> file1", "sdk/dangling -> nowhere",
		"sdk/"+strings.Repeat("n", 255)+"/"+strings.Repeat("f", 255), "own/file", "own/x/")...)
	atHand(t, src, root, append(libs("sdk"), "own", "own/x", "sdk/"+strings.Repeat("n", 255))...)
	var seen, wanted readHook
	r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnFirstRead: seen.hook})
	needGrown(t, r)
	p := openRoot(t, plain, RootSpec{Digest: root, Source: src, OnFirstRead: wanted.hook})
	for _, r := range []*Root{r, p} {
		for _, file := range []string{"sdk/bin/tool", "sdk/lib3/file10", "own/file", "sdk/lib1/file1"} {
			if _, err := os.ReadFile(filepath.Join(r.Path(), file)); err != nil {
				t.Error(err)
			}
		}
		for _, dir := range []string{"own", "sdk/lib2"} {
			if _, err := os.ReadDir(filepath.Join(r.Path(), dir)); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Lstat(filepath.Join(r.Path(), "sdk", "lib5", "none")); !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		r.Stats()
	}
	if s := r.Stats(); s.Lookups != 0 || s.FilesRead != 4 {
		t.Errorf("the kernel asked FUSE for %d names, and %d files were read", s.Lookups, s.FilesRead)
	}
	files := func(lines []string) []string {
		return slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "file ") })
	}
	if got, want := files(seen.list()), files(wanted.list()); !slices.Equal(got, want) {
		t.Errorf("reads:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, dir := range []string{"directory own", "directory sdk/lib2"} {
		if !slices.Contains(seen.list(), dir) {
			t.Errorf("%s is not reported: %q", dir, seen.list())
		}
	}
	if got, want := describe(t, r.Path()), describe(t, p.Path()); !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Errorf("%s, want %s", got[i], want[i])
			}
		}
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
	if err := errors.Join(r.Err(), r.Vouch(t.Context())); err != nil {
		t.Error(err)
	}
}

// TestFirstRootWritable changes what a grown image shows.
func TestFirstRootWritable(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	root := src.Tree(t, toolchain("sdk")...)
	atHand(t, src, root, libs("sdk")...)
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	needGrown(t, r)
	at := func(p string) string { return filepath.Join(r.Path(), p) }
	if err := errors.Join(
		os.WriteFile(at("sdk/lib1/file1"), []byte("new"), 0o644), os.Rename(at("sdk/lib2"), at("moved")),
		os.Remove(at("sdk/lib3/file3")), os.RemoveAll(at("sdk/lib4")), os.Chmod(at("sdk/bin/tool"), 0o700),
	); err != nil {
		t.Fatal(err)
	}
	if got := mustRead(t, at("sdk/lib1/file1")); string(got) != "new" {
		t.Errorf("read %q", got)
	}
	if got, want := mustRead(t, at("moved/file2")), mustRead(t, filepath.Join(src.Dir, vfstest.BlobFile(src.Find(t, root, "sdk/lib2/file2")))); string(got) != string(want) {
		t.Errorf("read %q, want %q", got, want)
	}
	if _, err := os.Stat(at("sdk/lib3/file3")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

// TestFirstRootWaits has directories that are not local. A reader must wait for them, and an error
// must be reported as the root's.
func TestFirstRootWaits(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	root := src.Tree(t, append(toolchain("sdk"), "a/deep/b/other", "a/broken/more", "a/held/last")...)
	atHand(t, src, root, append(libs("sdk"), "a", "a/deep")...)
	broken, held := src.Find(t, root, "a/broken"), src.Find(t, root, "a/held")
	src.Fail(broken, errors.New("no such directory today"))
	open := src.Gate(held)
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	if imagesOf(r) == 0 {
		t.Skip("the last directories are looked at first")
	}
	needGrown(t, r)
	listed := make(chan error)
	go func() {
		_, err := os.ReadDir(filepath.Join(r.Path(), "a/held"))
		listed <- err
	}()
	waitUntil(t, "somebody who waits", func() bool { return r.Stalled() > 0 })
	if got := vfstest.Walk(t, filepath.Join(r.Path(), "a/deep")); !slices.Equal(got, []string{".", "b", "b/other"}) {
		t.Errorf("shows %q", got)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	open()
	if err := <-listed; err != nil {
		t.Error(err)
	}
	plain := openRoot(t, openFS(t, Options{}), RootSpec{Digest: root, Source: src})
	if _, err := os.Lstat(filepath.Join(plain.Path(), "a/broken")); err != nil || plain.Err() != nil {
		t.Errorf("FUSE, which needs only the directory above: %v, %v", err, plain.Err())
	}
	// In an image its inode is stored with its listing.
	if _, err := os.Lstat(filepath.Join(r.Path(), "a/broken")); !isEIO(err) {
		t.Errorf("stat of what nobody has: %v", err)
	}
	if _, err := os.ReadDir(filepath.Join(r.Path(), "a/broken")); !isEIO(err) {
		t.Errorf("listing what nobody has: %v", err)
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "a/broken") {
		t.Errorf("error %v does not name the directory", err)
	}
}

// TestFirstRootClosedWhileWaiting closes a root while a process waits for a directory and has
// another one open.
func TestFirstRootClosedWhileWaiting(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	root := src.Tree(t, append(toolchain("sdk"), "a/held/last")...)
	atHand(t, src, root, append(libs("sdk"), "a")...)
	open := src.Gate(src.Find(t, root, "a/held"))
	defer open()
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	if imagesOf(r) == 0 {
		t.Skip("the last directories are looked at first")
	}
	needGrown(t, r)
	kept, err := os.Open(filepath.Join(r.Path(), "sdk"))
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	listed := make(chan error)
	go func() {
		_, err := os.ReadDir(filepath.Join(r.Path(), "a/held"))
		listed <- err
	}()
	waitUntil(t, "somebody who waits", func() bool { return r.Stalled() > 0 })
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if err := <-listed; err == nil {
		t.Error("a listing that nobody has made")
	}
	if _, err := kept.ReadDir(-1); err == nil {
		t.Log("a listing that the kernel had")
	}
}

// TestColdTreeHasNoImage: where files are not local, FUSE tells which of them are wanted before
// they have come.
func TestColdTreeHasNoImage(t *testing.T) {
	for name, cold := range map[string]func(*testing.T, *vfstest.Source, digest.Digest){
		"a directory": func(_ *testing.T, src *vfstest.Source, _ digest.Digest) { src.Forget() },
		"files": func(t *testing.T, src *vfstest.Source, root digest.Digest) {
			for i := range 7 {
				if err := os.Remove(filepath.Join(src.Dir, vfstest.BlobFile(src.Find(t, root, fmt.Sprintf("sdk/lib%d/file%d", i, i))))); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			src := vfstest.NewSource(t)
			f := openImageFS(t, src, nil)
			root := src.Tree(t, toolchain("sdk")...)
			atHand(t, src, root, libs("sdk")...)
			cold(t, src, root)
			if r := openRoot(t, f, RootSpec{Digest: root, Source: src}); imagesOf(r) != 0 {
				t.Error("the root shows an image")
			}
		})
	}
}

// TestSmallTreeHasNoImage: an image is worth its mount only for many files.
func TestSmallTreeHasNoImage(t *testing.T) {
	src := vfstest.NewSource(t)
	f := openImageFS(t, src, nil)
	root := src.Tree(t, "a/b", "c")
	atHand(t, src, root, "a")
	if r := openRoot(t, f, RootSpec{Digest: root, Source: src}); imagesOf(r) != 0 {
		t.Error("the root shows an image")
	}
}
