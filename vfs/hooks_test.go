package vfs

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// readHook counts the calls of OnFirstRead.
type readHook struct {
	mu   sync.Mutex
	seen map[string]int
	kind map[string]Kind
}

func (c *readHook) hook(p string, k Kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen, c.kind = map[string]int{}, map[string]Kind{}
	}
	c.seen[p]++
	c.kind[p] = k
}

func (c *readHook) kinds() map[string]Kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.kind)
}

func TestFirstReadsAreReportedOnce(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		// x and y are the same directory, with files of the same blob.
		root := src.Tree(t, "x/file", "y/file", "z/file", "unread/file", "link -> x/file", "unfollowed -> x")
		var seen readHook
		r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnFirstRead: seen.hook})
		var g errgroup.Group
		for range 8 {
			for _, p := range []string{"x/file", "y/file", "link"} {
				g.Go(func() error {
					_, err := os.ReadFile(filepath.Join(r.Path(), p))
					return err
				})
			}
			g.Go(func() error {
				_, err := os.ReadDir(filepath.Join(r.Path(), "z"))
				return err
			})
			g.Go(func() error { // stat is not a read
				_, err := os.Lstat(filepath.Join(r.Path(), "z/file"))
				_, err2 := os.Lstat(filepath.Join(r.Path(), "unread"))
				_, err3 := os.Lstat(filepath.Join(r.Path(), "unfollowed"))
				return errors.Join(err, err2, err3)
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		want := map[string]Kind{
			"": Directory, "x": Directory, "y": Directory, "z": Directory,
			"x/file": File, "y/file": File, "link": Symlink,
		}
		if got := seen.kinds(); !maps.Equal(got, want) {
			t.Errorf("reads: %v, want %v", got, want)
		}
		for p, n := range seen.seen {
			if n != 1 {
				t.Errorf("%q was reported %d times", p, n)
			}
		}
		want1 := Stats{DirectoriesRead: 4, FilesRead: 2, SymlinksRead: 1, BytesRead: 30}
		if got := withoutLookups(r.Stats()); got != want1 {
			t.Errorf("stats: %+v, want %+v", got, want1)
		}
	})
}

// withoutLookups drops what a test cannot foresee: a listing may spare lookups.
func withoutLookups(s Stats) Stats {
	s.Lookups, s.Absent = 0, 0
	return s
}

func TestLookupsAreCountedApart(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a/file", "a/other", "unasked")
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	before := r.Stats()
	for range 3 {
		for _, p := range []string{"a", "a/file", "a/no", "nothing", "nothing/below"} {
			_, _ = os.Lstat(filepath.Join(r.Path(), p))
		}
	}
	got := r.Stats()
	want := before
	want.DirectoriesRead += 2 // the root and a, to look the names up
	want.Lookups += 2
	want.Absent += 2
	if got != want {
		t.Errorf("stats: %+v, want %+v", got, want)
	}
	if _, err := os.ReadFile(filepath.Join(r.Path(), "a/file")); err != nil {
		t.Error(err)
	}
	want.FilesRead, want.BytesRead = want.FilesRead+1, want.BytesRead+15
	if got := r.Stats(); got != want {
		t.Errorf("after an open: %+v, want %+v", got, want)
	}
}

func TestAbsencesAreNotReads(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a/file")
	var seen readHook
	r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnFirstRead: seen.hook})
	for range 3 {
		for _, p := range []string{"no", "a/no", "a/file2", "no/file"} {
			if _, err := os.Lstat(filepath.Join(r.Path(), p)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
	want := map[string]Kind{"": Directory, "a": Directory} // their entries were needed to know
	if got := seen.kinds(); !maps.Equal(got, want) {
		t.Errorf("reads: %v, want %v", got, want)
	}
	if n := src.Calls(root); n != 1 {
		t.Errorf("the root was asked for %d times", n)
	}
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

func TestNothingIsAskedBeforeItIsNeeded(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	root := src.Tree(t, "a/b/file", "c/file")
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	if n := src.Calls(root); n != 0 {
		t.Errorf("mounting asked for the root %d times", n)
	}
	if _, err := os.Lstat(filepath.Join(r.Path(), "a/b")); err != nil {
		t.Error(err)
	}
	for p, want := range map[string]int{"a": 1, "a/b": 0, "a/b/file": 0, "c": 0} {
		if n := src.Calls(src.Find(t, root, p)); n != want {
			t.Errorf("%s was asked for %d times, want %d", p, n, want)
		}
	}
}

func TestSourceErrors(t *testing.T) {
	missing := errors.New("blob is missing")
	bothWays(t, func(t *testing.T, f *FS) {
		for _, path := range []string{"", "a", "a/file"} {
			t.Run("at "+path, func(t *testing.T) {
				src := vfstest.NewSource(t)
				root := src.Tree(t, "a/file", "good")
				d := root
				if path != "" {
					d = src.Find(t, root, path)
				}
				src.Fail(d, missing)
				var seen readHook
				r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnFirstRead: seen.hook})
				_, err := os.ReadFile(filepath.Join(r.Path(), "a/file"))
				if !isEIO(err) {
					t.Errorf("read: %v, want EIO", err)
				}
				if err := r.Err(); !errors.Is(err, missing) {
					t.Errorf("Err: %v", err)
				}
				// Of a file it is told before it comes.
				if _, ok := seen.kinds()[path]; ok != (path == "a/file") {
					t.Errorf("%q was reported as read: %t", path, ok)
				}
				src.Fail(d, nil) // an error is not kept
				if _, err := os.ReadFile(filepath.Join(r.Path(), "a/file")); err != nil {
					t.Errorf("after the blob came back: %v", err)
				}
				if err := r.Err(); !errors.Is(err, missing) {
					t.Errorf("the first error is lost: %v", err)
				}
			})
		}
	})
}

func TestWrongSizeOfBlob(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		root := src.Tree(t, "file")
		d := src.Find(t, root, "file")
		if err := os.WriteFile(src.Blobs[d], []byte("short"), 0o600); err != nil {
			t.Fatal(err)
		}
		r := openRoot(t, f, RootSpec{Digest: root, Source: src})
		if got, err := os.ReadFile(filepath.Join(r.Path(), "file")); !isEIO(err) || len(got) > 0 {
			t.Errorf("read: %q, %v", got, err)
		}
		if r.Err() == nil {
			t.Error("no error is reported")
		}
	})
}

func TestInvalidDirectoriesAreErrors(t *testing.T) {
	f := openFS(t, Options{})
	src := vfstest.NewSource(t)
	d := src.Blob(t, "x").Proto()
	bad := src.Add(t, &repb.Directory{Files: []*repb.FileNode{{Name: "..", Digest: d}, {Name: "a/b", Digest: d}}})
	half := src.Add(t, &repb.Directory{Files: []*repb.FileNode{{Name: "good", Digest: d}, {Name: "nodigest"}}})
	root := src.Add(t, &repb.Directory{
		Directories: []*repb.DirectoryNode{{Name: "bad", Digest: bad.Proto()}, {Name: "half", Digest: half.Proto()}},
		Files:       []*repb.FileNode{{Name: "good", Digest: d}},
	})
	r := openRoot(t, f, RootSpec{Digest: root, Source: src})
	if _, err := os.ReadFile(filepath.Join(r.Path(), "good")); err != nil {
		t.Errorf("a good file beside a bad directory: %v", err)
	}
	for _, p := range []string{"bad/x", "half/nodigest", "half/good"} {
		if _, err := os.Lstat(filepath.Join(r.Path(), p)); !isEIO(err) {
			t.Errorf("%s: %v, want EIO", p, err)
		}
	}
	if _, err := os.ReadDir(filepath.Join(r.Path(), "bad")); !isEIO(err) {
		t.Errorf("list: %v, want EIO", err)
	}
	if err := r.Err(); !errors.Is(err, ErrInvalidDirectory) || !strings.Contains(err.Error(), "directory bad") {
		t.Errorf("Err: %v", err)
	}
}

func TestStalledWhileTheSourceBlocks(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		src.InCall = make(chan digest.Digest, 10)
		root := src.Tree(t, "one", "two", "three")
		var mu sync.Mutex
		var told time.Duration
		r := openRoot(t, f, RootSpec{Digest: root, Source: src, OnStall: func(d time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			told += d
		}})
		if _, err := os.ReadFile(filepath.Join(r.Path(), "three")); err != nil {
			t.Fatal(err)
		}
		before := r.Stalled()
		opens := []func(){src.Gate(src.Find(t, root, "one")), src.Gate(src.Find(t, root, "two"))}
		start := time.Now()
		var g errgroup.Group
		for _, p := range []string{"one", "two"} {
			g.Go(func() error {
				_, err := os.ReadFile(filepath.Join(r.Path(), p))
				return err
			})
		}
		<-src.InCall
		<-src.InCall
		if r.Stalled() <= before {
			t.Error("a wait that is going on is not counted")
		}
		waitUntil(t, "50 ms of waiting", func() bool { return r.Stalled()-before > 50*time.Millisecond })
		opens[0]()
		opens[1]()
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		if got := r.Stalled() - before; got > took {
			t.Errorf("stalled %s within %s: waits were counted twice", got, took)
		}
		after := r.Stalled()
		if _, err := os.ReadFile(filepath.Join(r.Path(), "one")); err != nil {
			t.Fatal(err)
		}
		if r.Stalled()-after > took {
			t.Error("the clock went on after the wait")
		}
		waitUntil(t, "the calls of OnStall", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return told == r.Stalled()
		})
	})
}

// TestEndedMount: a command that lost its inputs may have failed for that alone.
func TestEndedMount(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := vfstest.NewSource(t)
		r := openRoot(t, f, RootSpec{Digest: src.Tree(t, "a", "b"), Source: src})
		if _, err := os.ReadFile(filepath.Join(r.Path(), "a")); err != nil {
			t.Fatal(err)
		}
		if err := r.Err(); err != nil {
			t.Fatal(err)
		}
		if err := unix.Unmount(fusePoint(r.points.path), unix.MNT_FORCE|unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); r.Err() == nil; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the root has no error")
			}
		}
		if err := r.Verify(t.Context()); err == nil {
			t.Error("it can be verified")
		}
	})
}
