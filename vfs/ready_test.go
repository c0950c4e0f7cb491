package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// spareRoots waits until the roots that are wanted ahead are there, and returns them.
func spareRoots(f *FS) []*bareRoot {
	f.ready.maker.Wait()
	f.ready.mu.Lock()
	defer f.ready.mu.Unlock()
	return slices.Clone(f.ready.spare)
}

// ready makes sure that the next root is one that was made ahead.
func ready(t testing.TB, f *FS, owner *Owner) {
	t.Helper()
	src := vfstest.NewSource(t)
	r, err := f.NewRoot(t.Context(), RootSpec{Name: "before", Digest: src.Tree(t, "before/file"), Source: src, Owner: owner})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(r.Path(), "before", "file"), []byte("other"), 0o644),
		os.WriteFile(filepath.Join(r.Path(), "left"), nil, 0o644), r.Close()); err != nil {
		t.Fatal(err)
	}
	if n := len(spareRoots(f)); n == 0 {
		t.Fatal("no root was made ahead")
	}
}

// TestReady uses roots that were made ahead as actions do.
func TestReady(t *testing.T) {
	h := startChild(t, "helper")
	bothMeans(t, func(t *testing.T, f *FS) {
		ready(t, f, nil)
		src := vfstest.NewSource(t)
		for i := range 3 {
			spareRoots(f)
			tree := src.Tree(t, fmt.Sprintf("dir-%d/file-%d", i, i), "same/file")
			var mu sync.Mutex
			var read []string
			r := openRoot(t, f, RootSpec{
				Name: fmt.Sprint(i), Digest: tree, Source: src,
				OnFirstRead: func(path string, _ Kind) {
					mu.Lock()
					defer mu.Unlock()
					read = append(read, path)
				},
			})
			if !r.wasReady || filepath.Dir(r.Path()) != filepath.Join(f.points.dir, fmt.Sprint(i)) {
				t.Errorf("root %d was made ahead: %t; it is at %s", i, r.wasReady, r.Path())
			}
			want := []string{fmt.Sprintf("dir-%d", i), "same"}
			if got := namesIn(t, r.Path()); !slices.Equal(got, want) {
				t.Errorf("root %d has %q, want %q", i, got, want)
			}
			in := fmt.Sprintf("dir-%d/file-%d", i, i)
			if got := h.do("read", filepath.Join(r.Path(), in)); got != fmt.Sprintf("content of file-%d", i) {
				t.Errorf("read %q", got)
			}
			if err := os.WriteFile(filepath.Join(r.Path(), "made"), []byte("made"), 0o644); err != nil {
				t.Error(err)
			}
			if _, ok := r.Written("made"); !ok {
				t.Error("what was written is not known")
			}
			if was, ok := r.Unchanged(in); !ok || was.Digest != src.Find(t, tree, in) {
				t.Errorf("unchanged: %+v, %t", was, ok)
			}
			mu.Lock()
			if !slices.Contains(read, in) {
				t.Errorf("%q was read, want %s", read, in)
			}
			mu.Unlock()
			if err := r.Err(); err != nil {
				t.Error(err)
			}
		}
	})
}

// bothMeans runs a test with roots that are made ahead, written on disk and in memory.
func bothMeans(t *testing.T, test func(t *testing.T, f *FS)) {
	for name, memory := range map[string]int64{"disk": 0, "memory": 1 << 20} {
		t.Run(name, func(t *testing.T) { test(t, openFS(t, Options{Ready: 2, UpperMemory: memory})) })
	}
}

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestReadyIsOfOneOwner: a root that was made ahead is for its owner, and closed to all others until
// it is used.
func TestReadyIsOfOneOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root has roots of several owners")
	}
	one, other := &Owner{UID: 12345, GID: 12345}, &Owner{UID: 12346, GID: 12346}
	bothMeans(t, func(t *testing.T, f *FS) {
		ready(t, f, one)
		spare := spareRoots(f)[0]
		for _, dir := range []string{spare.points.path, spare.writable.path} {
			if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
				t.Errorf("%s before it is used: %v, %v", dir, info.Mode(), err)
			}
		}
		vfstest.AsUser(t, int(one.UID), func() {
			if _, err := os.ReadDir(spare.over.Path()); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("its owner lists it: %v", err)
			}
			if err := os.WriteFile(filepath.Join(string(spare.over.Upper()), "file"), nil, 0o644); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("its owner writes into it: %v", err)
			}
		})
		src := vfstest.NewSource(t)
		tree := src.Tree(t, "file")
		if r := openRoot(t, f, RootSpec{Name: "other", Digest: tree, Source: src, Owner: other}); r.wasReady {
			t.Error("a root is another owner's")
		}
		r := openRoot(t, f, RootSpec{Name: "one", Digest: tree, Source: src, Owner: one})
		if !r.wasReady {
			t.Error("the root was not made ahead")
		}
		in, err := os.OpenRoot(r.Path())
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		vfstest.AsUser(t, int(one.UID), func() {
			if err := in.WriteFile("made", nil, 0o644); err != nil {
				t.Errorf("its owner cannot write: %v", err)
			}
		})
		if info, err := os.Stat(r.points.path); err != nil || info.Mode().Perm() != 0o710 {
			t.Errorf("around a used root: %v, %v", info.Mode(), err)
		}
	})
}

// TestReadyBound: there are as many spare roots as actions had at a time, of the owners that had
// some last, up to the bound; closing leaves none.
func TestReadyBound(t *testing.T) {
	f := openFS(t, Options{Ready: 2})
	src := vfstest.NewSource(t)
	tree := src.Tree(t, "file")
	for round := range 2 {
		for i := range 4 {
			spec := RootSpec{Name: fmt.Sprintf("%d-%d", round, i), Digest: tree, Source: src}
			if os.Getuid() == 0 {
				spec.Owner = &Owner{UID: 70000 + uint32(i), GID: 70000 + uint32(i)}
			}
			openRoot(t, f, spec)
			if n := len(spareRoots(f)); n < 1 || n > 2 {
				t.Errorf("%d roots are made ahead", n)
			}
		}
	}
	f.ready.mu.Lock()
	made := f.ready.made
	f.ready.mu.Unlock()
	points, err := mounts.Below(f.points.dir)
	if err != nil {
		t.Fatal(err)
	}
	left := slices.DeleteFunc(points, func(p string) bool { return !strings.Contains(p, names.ReadyRoot) })
	if len(left) > 2*made || made < 8 {
		t.Errorf("%d mounts of %d roots that were made ahead", len(left), made)
	}
}

// TestNotReady: roots whose mounts depend on more than the owner are not made ahead.
func TestNotReady(t *testing.T) {
	f := openFS(t, Options{Ready: 2})
	ready(t, f, nil)
	src := vfstest.NewSource(t)
	tree := src.Tree(t, "file")
	if r := openRoot(t, f, RootSpec{Name: "looks", Digest: tree, Source: src, OnLook: func(string, Look) {}}); r.wasReady {
		t.Error("looks in a root that was made ahead would be unknown")
	}
	if err := f.Check(); err != nil {
		t.Error(err)
	}
	if n := len(spareRoots(f)); n != 1 {
		t.Errorf("%d roots are ready, want 1: a check must make its own", n)
	}
	if _, err := f.NewRoot(t.Context(), RootSpec{Name: names.ReadyRoot + "1", Digest: tree, Source: src}); err == nil {
		t.Error("a root has the name of one that is made ahead")
	}
}

// TestReadyFails: if a root cannot be made ahead, nothing is left of it, and actions make their
// own.
func TestReadyFails(t *testing.T) {
	for name, inTheWay := range map[string]func(b *bareRoot) string{
		"mount points":  func(b *bareRoot) string { return b.points.path },
		"written files": func(b *bareRoot) string { return b.writable.path },
	} {
		t.Run(name, func(t *testing.T) {
			f := openFS(t, Options{Ready: 2})
			next := &bareRoot{}
			next.points, next.writable = f.foldersOf(names.ReadyRoot + "1")
			blocked := inTheWay(next)
			if err := os.Mkdir(blocked, 0o700); err != nil {
				t.Fatal(err)
			}
			src := vfstest.NewSource(t)
			tree := src.Tree(t, "file")
			openRoot(t, f, RootSpec{Name: "first", Digest: tree, Source: src})
			if n := len(spareRoots(f)); n != 0 {
				t.Fatalf("%d roots were made ahead: the test tests nothing", n)
			}
			for _, path := range []string{next.points.path, next.writable.path} {
				if _, err := os.Stat(path); path != blocked && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s is left: %v", path, err)
				}
			}
			if err := os.Remove(blocked); err != nil {
				t.Errorf("what was in the way is no longer there: %v", err)
			}
			if r := openRoot(t, f, RootSpec{Name: "second", Digest: tree, Source: src}); r.wasReady {
				t.Error("the second root was made ahead")
			}
			if n := len(spareRoots(f)); n != 1 {
				t.Errorf("%d roots are made ahead later, want 1", n)
			}
		})
	}
}

// TestReadyWithImages: a root with the images of one of the last roots is made ahead.
func TestReadyWithImages(t *testing.T) {
	src := vfstest.NewSource(t)
	openImageFS(t, src, nil) // or skip
	f := openFS(t, Options{Blobs: blobFolder(src, nil), Ready: 2})
	plain := openFS(t, Options{})
	gathered(t, f, src)
	images := func(i int) *Root {
		root := local(t, src, src.Tree(t, libraries(fmt.Sprint("own", i))...))
		r := openRoot(t, f, RootSpec{Name: fmt.Sprint("images-", i), Digest: root, Source: src})
		if imagesOf(r) != 1 {
			t.Fatal("the root shows no image")
		}
		spareRoots(f)
		return r
	}
	for i, want := range []bool{false, false, true, true} {
		r := images(i)
		if r.wasReady != want {
			t.Errorf("root %d was made ahead: %t", i, r.wasReady)
		}
		compared := openRoot(t, plain, RootSpec{Name: fmt.Sprint(i), Digest: r.spec.Digest, Source: src})
		if got, want := describe(t, r.Path()), describe(t, compared.Path()); !slices.Equal(got, want) {
			t.Errorf("root %d:\n%q\nwant\n%q", i, got, want)
		}
		if err := os.WriteFile(filepath.Join(r.Path(), "lib01", "made"), nil, 0o644); err != nil {
			t.Error(err)
		}
		if s := r.Stats(); s.FilesRead == 0 || s.SymlinksRead != 1 {
			t.Errorf("reads of root %d: %+v", i, s)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	// Its images are not those of a root that has none, and the other way round.
	r := openRoot(t, f, RootSpec{Name: "none", Digest: src.Tree(t, "other/file"), Source: src})
	if got := namesIn(t, r.Path()); !slices.Equal(got, []string{"other"}) {
		t.Errorf("a root without images has %q", got)
	}
	if err := f.images.DropAll(); err != nil {
		t.Error(err)
	}
	r = openRoot(t, f, RootSpec{
		Name: "dropped", Digest: local(t, src, src.Tree(t, libraries("last")...)), Source: src,
	})
	if r.wasReady || imagesOf(r) > 0 && !r.images.Grown() {
		t.Error("the root has images of which there are none")
	}
	if got, want := namesIn(t, r.Path()), 17; len(got) != want {
		t.Errorf("%q", got)
	}
}

// TestReadyForOtherOwners: images that the roots of one owner show recur for others, too.
func TestReadyForOtherOwners(t *testing.T) {
	src := vfstest.NewSource(t)
	openImageFS(t, src, nil) // or skip
	owners := []Owner{{UID: 1900000000, GID: 1900000000}, {UID: 1900065536, GID: 1900065536}, {UID: 1900131072, GID: 1900131072}}
	namespaces := map[Owner]*os.File{}
	for _, o := range owners {
		namespace, err := sandbox.UserNamespace(&sandbox.User{UID: o.UID, GID: o.GID, IDs: 1 << 16})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = namespace.Close() })
		namespaces[o] = namespace
	}
	f := openFS(t, Options{Blobs: blobFolder(src, nil), Ready: 4, Namespaces: namespaces})
	gathered(t, f, src)
	for i, test := range []struct {
		owner int
		want  bool
	}{{0, false}, {1, false}, {1, true}, {0, false}, {0, true}, {2, false}, {2, true}} {
		r := openRoot(t, f, RootSpec{
			Name: fmt.Sprint("owners-", i), Digest: local(t, src, src.Tree(t, libraries(fmt.Sprint("own", i))...)), Source: src,
			Owner: &owners[test.owner],
		})
		if r.wasReady != test.want || imagesOf(r) != 1 {
			t.Errorf("root %d, of owner %d, with %d images, was made ahead: %t", i, test.owner, imagesOf(r), r.wasReady)
		}
		spareRoots(f) // waits for those that are being made
	}
}
