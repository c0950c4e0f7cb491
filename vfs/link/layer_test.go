package link

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// batchSource fetches in one call what it is asked for.
type batchSource struct {
	*vfstest.Source
	loads [][]digest.Digest
	err   error
}

func (s *batchSource) Load(_ context.Context, ds []digest.Digest) error {
	s.loads = append(s.loads, ds)
	return s.err
}

func TestLinksAreLoadedInBatches(t *testing.T) {
	f := openLinkFarm(t, linkFarmOptions{Bare: true})
	src := &batchSource{Source: vfstest.NewSource(t)}
	root := src.Tree(t, "a/1", "a/b/2", "c/3", "c/d/4", "5")
	openRoot(t, f, rootSpec{Digest: root, Source: src})
	var sizes []int
	for _, ds := range src.loads {
		sizes = append(sizes, len(ds))
	}
	if !slices.Equal(sizes, []int{1, 2, 2, 5}) { // three levels, then all files
		t.Errorf("batches of %d", sizes)
	}
	src.loads = nil
	openRoot(t, f, rootSpec{Digest: root, Source: src})
	for _, ds := range src.loads {
		for _, d := range ds {
			if src.Dirs[d] == nil {
				t.Errorf("file %s was loaded again", d)
			}
		}
	}
	if n := src.Calls(src.Find(t, root, "a/b/2")); n != 1 {
		t.Errorf("a file was opened %d times", n)
	}
	src.err = errors.New("storage is on fire")
	if _, err := f.newRoot(t.Context(), rootSpec{Digest: root, Source: src}); !errors.Is(err, src.err) {
		t.Errorf("load failed: %v", err)
	}
}

func TestLinkedRootFailures(t *testing.T) {
	errLost := errors.New("lost")
	for name, c := range map[string]struct {
		spoil func(t *testing.T, s *vfstest.Source, root digest.Digest) digest.Digest
		want  error
		part  string
	}{
		"missing file": {func(t *testing.T, s *vfstest.Source, root digest.Digest) digest.Digest {
			s.Fail(s.Find(t, root, "a/file"), errLost)
			return root
		}, errLost, "file a/file"},
		"missing directory": {func(t *testing.T, s *vfstest.Source, root digest.Digest) digest.Digest {
			s.Fail(s.Find(t, root, "a"), errLost)
			return root
		}, errLost, "directory a"},
		"short blob": {func(t *testing.T, s *vfstest.Source, root digest.Digest) digest.Digest {
			p := s.Blobs[s.Find(t, root, "a/file")]
			if err := errors.Join(os.Chmod(p, 0o600), os.Truncate(p, 3)); err != nil {
				t.Fatal(err)
			}
			return root
		}, nil, "has 3 bytes"},
		"bad name": {func(t *testing.T, s *vfstest.Source, root digest.Digest) digest.Digest {
			bad := s.Add(t, &repb.Directory{Symlinks: []*repb.SymlinkNode{{Name: "..", Target: "x"}}})
			return s.Add(t, &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "d", Digest: bad.Proto()}}})
		}, tree.ErrInvalid, "directory d"},
		"too many entries": {func(t *testing.T, s *vfstest.Source, _ digest.Digest) digest.Digest {
			below := s.Add(t, &repb.Directory{})
			for range 8 {
				m := &repb.Directory{}
				for i := range 10 {
					m.Directories = append(m.Directories, &repb.DirectoryNode{Name: fmt.Sprint(i), Digest: below.Proto()})
				}
				below = s.Add(t, m)
			}
			return below
		}, tree.ErrInvalid, "too many"},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, f *linkFarm) {
				src := vfstest.NewSource(t)
				root := c.spoil(t, src, src.Tree(t, "a/file", "b"))
				_, err := f.newRoot(t.Context(), rootSpec{Digest: root, Source: src})
				if err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.part) {
					t.Errorf("error %v", err)
				}
			})
		})
	}
}

func TestLinkingIsCancelled(t *testing.T) {
	bothWays(t, func(t *testing.T, f *linkFarm) {
		src := vfstest.NewSource(t)
		src.InCall = make(chan digest.Digest, 1)
		root := src.Tree(t, "a/file", "b")
		src.Gate(src.Find(t, root, "a/file"))
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-src.InCall
			cancel()
		}()
		if _, err := f.newRoot(ctx, rootSpec{Digest: root, Source: src}); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

// TestManyLinks gives a copy as many names as its file system allows. Other roots must get another
// copy.
func TestManyLinks(t *testing.T) {
	f := openLinkFarm(t, linkFarmOptions{Bare: true})
	src := vfstest.NewSource(t)
	top := src.Tree(t, "file")
	open := func(name string) (r *root, number uint64) {
		r = openRoot(t, f, rootSpec{Digest: top, Source: src})
		if got := mustRead(t, filepath.Join(r.path(), "file")); string(got) != "content of file" {
			t.Errorf("root %s: %q", name, got)
		}
		if _, ok := r.unchanged("file"); !ok {
			t.Errorf("root %s: the file is changed", name)
		}
		var st unix.Stat_t
		if err := errors.Join(r.bare.Intact(), unix.Lstat(filepath.Join(r.path(), "file"), &st)); err != nil {
			t.Error(err)
		}
		return r, st.Ino
	}
	before, first := open("before")
	giveAllNames(t, filepath.Join(before.path(), "file"))
	_, second := open("after")
	_, third := open("later")
	if second == first || third != second {
		t.Errorf("the files have the inodes %d, %d, %d; want the first two to differ, and the last two to be one", first, second, third)
	}
	if err := before.bare.Intact(); err != nil {
		t.Error(err)
	}
}

// giveAllNames gives a file as many names as it can have.
func giveAllNames(t *testing.T, path string) {
	t.Helper()
	const most = 70_000 // more than ext4 allows, by far less than xfs or tmpfs do
	dir := t.TempDir()
	for i := range most {
		err := os.Link(path, filepath.Join(dir, strconv.Itoa(i)))
		if errors.Is(err, unix.EMLINK) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("a file may have more than %d names here", most)
	}
	t.Skipf("a file may have more than %d names here", most)
}

// TestLinkCacheIsBounded: unused copies are evicted, used ones stay.
func TestLinkCacheIsBounded(t *testing.T) {
	f := openLinkFarm(t, linkFarmOptions{Bare: true, MaxBytes: 20})
	src := vfstest.NewSource(t)
	files := func() (n int) {
		for _, p := range vfstest.Walk(t, filepath.Join(f.dir, ".links")) {
			if strings.Contains(p, "/") {
				n++
			}
		}
		return n
	}
	root := src.Tree(t, "1", "2", "3", "4") // 12 bytes each
	r := openRoot(t, f, rootSpec{Digest: root, Source: src})
	if n := files(); n != 4 {
		t.Errorf("%d files while in use", n)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if n := files(); n != 1 || f.copies.bytes != 12 {
		t.Errorf("%d files, %d bytes when idle", n, f.copies.bytes)
	}
	r = openRoot(t, f, rootSpec{Digest: root, Source: src})
	if got := mustRead(t, filepath.Join(r.path(), "4")); string(got) != "content of 4" {
		t.Errorf("read %q", got)
	}
	if err := os.WriteFile(filepath.Join(r.path(), "3"), nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.bare.Intact(), r.close()); !errors.Is(err, ErrInputChanged) {
		t.Error(err)
	}
	if n := files(); n != 1 || f.copies.bytes != 12 {
		t.Errorf("%d files, %d bytes at the end", n, f.copies.bytes)
	}
}
