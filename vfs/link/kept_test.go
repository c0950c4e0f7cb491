package link

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// sdkFiles is how many files each of two folders has, which alone are too small to be kept.
const sdkFiles = minKeptEntries/2 - 1

// sdk is a tree with a large part that recurs, below a/sdk, and a file of its own.
func sdk(t testing.TB, src *vfstest.Source, own string) digest.Digest {
	t.Helper()
	paths := []string{"a/" + own, "a/sdk/to -> bin", "a/sdk/to2 -> lib"}
	for i := range sdkFiles {
		paths = append(paths, fmt.Sprintf("a/sdk/bin/%d", i), fmt.Sprintf("a/sdk/lib/%d!", i))
	}
	return src.Tree(t, paths...)
}

// kept are the paths of the trees that f keeps.
func kept(f *linkFarm) (paths []string) {
	f.kept.mu.Lock()
	defer f.kept.mu.Unlock()
	for key := range f.kept.byKey {
		paths = append(paths, key.path)
	}
	slices.Sort(paths)
	return paths
}

// TestKeptTree: a recurring subtree is linked once more and then never again. Concurrent roots that
// use it do not notice each other, nor each other's changes.
func TestKeptTree(t *testing.T) {
	f := openLinkFarm(t, linkFarmOptions{})
	src := vfstest.NewSource(t)
	change := func(r *root) {
		at := func(p string) string { return filepath.Join(r.path(), p) }
		for _, err := range []error{
			os.WriteFile(at("a/sdk/lib/0"), []byte("changed"), 0), os.Remove(at("a/sdk/bin/1")),
			os.Rename(at("a/sdk/lib"), at("a/moved")), os.WriteFile(at("a/sdk/bin/new"), nil, 0o644),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		if in, ok := r.unchanged("a/moved/1"); !ok || !in.Executable {
			t.Errorf("what was moved with its folder is %+v, %t", in, ok)
		}
	}
	for i, wantKept := range [][]string{nil, {"a/sdk"}, {"a/sdk"}, {"a/sdk"}} {
		var wg sync.WaitGroup
		for j := range 2 {
			if i < 2 && j > 0 {
				break
			}
			own := fmt.Sprintf("own%d-%d", i, j)
			r := openRoot(t, f, rootSpec{Digest: sdk(t, src, own), Source: src})
			wg.Go(func() {
				if got := vfstest.Walk(t, r.path()); len(got) != 2*sdkFiles+8 {
					t.Errorf("root %d has %d entries", i, len(got))
				}
				for p, mode := range map[string]os.FileMode{
					"a": os.ModeDir | 0o755, "a/sdk": os.ModeDir | 0o755, "a/sdk/lib/0": 0o555, "a/sdk/bin/1": 0o444, "a/" + own: 0o444,
				} {
					if st, err := os.Stat(filepath.Join(r.path(), p)); err != nil || st.Mode() != mode || !st.ModTime().Equal(oldTime) {
						t.Errorf("root %d: %s: %v, %v", i, p, st, err)
					}
				}
				if got := mustRead(t, filepath.Join(r.path(), "a/sdk/lib/0")); string(got) != "content of 0" {
					t.Errorf("root %d reads %q", i, got)
				}
				if in, ok := r.unchanged("a/sdk"); !ok || in.Kind != tree.Dir {
					t.Errorf("a/sdk is %+v, %t", in, ok)
				}
				change(r)
				if err := r.close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := kept(f); !slices.Equal(got, wantKept) {
			t.Errorf("after root %d %q are kept", i, got)
		}
	}
	for _, k := range f.kept.byKey {
		if k.users != 0 || k.entries != 2*sdkFiles+4 {
			t.Errorf("the tree has %d users, %d entries", k.users, k.entries)
		}
	}
}

// TestKeptTreeOfAnOwner: a kept tree belongs to one owner.
func TestKeptTreeOfAnOwner(t *testing.T) {
	f := openLinkFarm(t, linkFarmOptions{})
	src := vfstest.NewSource(t)
	root := sdk(t, src, "own")
	for i := range 6 {
		owner := folder.Owner{UID: uint32(70000 + i%2), GID: 70000}
		r := openRoot(t, f, rootSpec{Digest: root, Source: src, Owner: &owner})
		in, err := os.OpenRoot(r.path())
		if err != nil {
			t.Fatal(err)
		}
		vfstest.AsUser(t, int(owner.UID), func() {
			if err := in.Remove("a/sdk/bin/1"); err != nil {
				t.Error(err)
			}
		})
		if err := errors.Join(in.Close(), r.close()); err != nil {
			t.Fatal(err)
		}
	}
	if got := kept(f); !slices.Equal(got, []string{"", ""}) {
		t.Errorf("kept are %q", got)
	}
}

// TestKeptTreeThatWasChanged: a kept tree that another process changed is discarded, and made
// again.
func TestKeptTreeThatWasChanged(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"a file more":   func(dir string) error { return os.WriteFile(filepath.Join(dir, "a/sdk/bin/more"), nil, 0o644) },
		"a file less":   func(dir string) error { return os.Remove(filepath.Join(dir, "a/sdk/lib/1")) },
		"a file's text": func(dir string) error { return os.WriteFile(filepath.Join(dir, "a/sdk/lib/1"), []byte("x"), 0) },
		"all":           os.RemoveAll,
	} {
		t.Run(name, func(t *testing.T) {
			f := openLinkFarm(t, linkFarmOptions{})
			src := vfstest.NewSource(t)
			root := func(i int) {
				t.Helper()
				r := openRoot(t, f, rootSpec{Digest: sdk(t, src, fmt.Sprint(i)), Source: src})
				if n := len(vfstest.Walk(t, r.path())); n != 2*sdkFiles+8 {
					t.Errorf("root %d has %d entries", i, n)
				}
				if got := mustRead(t, filepath.Join(r.path(), "a/sdk/lib/1")); string(got) != "content of 1" {
					t.Errorf("root %d reads %q", i, got)
				}
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
			}
			root(0)
			root(1)
			var before string
			for _, k := range f.kept.byKey {
				before = k.dir
			}
			if err := spoil(before); err != nil {
				t.Fatal(err)
			}
			root(2)
			if _, err := os.Lstat(before); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("it is still there: %v", err)
			}
			if got := kept(f); !slices.Equal(got, []string{"a/sdk"}) {
				t.Errorf("kept are %q", got)
			}
		})
	}
}

// Trees that no root uses give way to the bound of the copies.
func TestKeptTreesAreBounded(t *testing.T) {
	f := openLinkFarm(t, linkFarmOptions{MaxBytes: 4 * sdkFiles})
	src := vfstest.NewSource(t)
	for i := range 3 {
		r := openRoot(t, f, rootSpec{Digest: sdk(t, src, fmt.Sprint(i)), Source: src})
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(kept(f)) > 0 || f.kept.entries != 0 || f.copies.bytes > f.copies.maxBytes {
		t.Errorf("%q are kept, %d bytes", kept(f), f.copies.bytes)
	}
}

// A tree that cannot be made fails its root, leaves nothing, and is made by the next one.
func TestKeptTreeThatFails(t *testing.T) {
	f := openLinkFarm(t, linkFarmOptions{})
	src := vfstest.NewSource(t)
	first, second, third := sdk(t, src, "x"), sdk(t, src, "y"), sdk(t, src, "z")
	if err := openRoot(t, f, rootSpec{Digest: first, Source: src}).close(); err != nil {
		t.Fatal(err)
	}
	all := f.copies.maxBytes
	f.copies.maxBytes = 0
	f.copies.release(nil) // no copies are left
	lost := src.Find(t, first, "a/sdk/lib/7")
	path := src.Blobs[lost]
	src.Blobs[lost] = path + ".gone"
	if _, err := f.newRoot(t.Context(), rootSpec{Digest: second, Source: src}); err == nil {
		t.Error("an input is not there")
	}
	if left, err := os.ReadDir(f.kept.dir); len(left) > 0 || err != nil || len(kept(f)) > 0 {
		t.Errorf("%v are left, %v; kept are %q", left, err, kept(f))
	}
	src.Blobs[lost], f.copies.maxBytes = path, all
	openRoot(t, f, rootSpec{Digest: third, Source: src})
	if got := kept(f); !slices.Equal(got, []string{"a/sdk"}) {
		t.Errorf("kept are %q", got)
	}
}
