package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// A forest is an upstream that sends the same directories for each tree, and whose blobs never come.
type forest struct {
	ds       []digest.Digest
	messages [][]byte
	err      error         // of FetchTree
	begin    chan struct{} // FetchTree waits for it; nil: it does not
	sent     int
	fetching chan struct{} // has a place for each call of Fetch that begins
	given    chan struct{} // and for each that ends
}

// newForest returns a forest of so many directories with different files.
func newForest(t *testing.T, directories int) *forest {
	t.Helper()
	u := &forest{fetching: make(chan struct{}, directories+1), given: make(chan struct{}, directories+1)}
	for i := range directories {
		u.add(t, storeDirectory(fmt.Sprintf("f:%04d", i)))
	}
	return u
}

func (u *forest) add(t *testing.T, m *repb.Directory) digest.Digest {
	t.Helper()
	d, message, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	u.ds, u.messages = append(u.ds, d), append(u.messages, message)
	return d
}

func (u *forest) Fetch(ctx context.Context, _ []digest.Digest, _ func(digest.Digest, io.Reader) error) error {
	u.fetching <- struct{}{}
	<-ctx.Done()
	u.given <- struct{}{}
	return ctx.Err()
}

func (u *forest) FetchTree(ctx context.Context, _ digest.Digest, came func(digest.Digest, []byte) bool) error {
	if u.begin != nil {
		<-u.begin
	}
	for i, d := range u.ds {
		if u.sent++; !came(d, u.messages[i]) {
			break
		}
	}
	return u.err
}

// TestTreeIsLocal: the directories of a tree are in memory, not in the store, and nobody fetches
// them again.
func TestTreeIsLocal(t *testing.T) {
	s := storeOpen(t, t.TempDir(), storeOptions{})
	u := newForest(t, 300)
	invalid := u.add(t, storeDirectory("f:.."))
	here := storeDirectory("f:known")
	u.add(t, here)
	known := storePutDirectory(t, s, here)
	r := s.Through(u)
	reports := 0
	fetched, err := r.PrefetchTree(t.Context(), u.ds[0], 1000, func() { reports++ })
	if err != nil || len(fetched) != 301 || reports != 2 {
		t.Errorf("fetched %d, %d reports, %v", len(fetched), reports, err)
	}
	for _, d := range u.ds {
		if _, ok := r.LocalDirectory(d); ok != (d != invalid) || s.Has(d) != (d == known) {
			t.Errorf("%s is local: %t", d, ok)
		}
	}
	if _, err := r.Directory(t.Context(), invalid); !errors.Is(err, tree.ErrInvalid) {
		t.Errorf("an invalid one: %v", err)
	}
	if got, err := r.PrefetchDirectories(t.Context(), u.ds); len(got) > 0 || err != nil || len(u.fetching) > 0 {
		t.Errorf("%d are fetched again, %v", len(got), err)
	}
	if blobs, _ := r.Fetched(); blobs != 301 {
		t.Errorf("%d count as fetched", blobs)
	}
}

// TestTreeIsBounded: a tree brings no more directories than it may, takes no more memory than its
// share, and ends when most of it was here before.
func TestTreeIsBounded(t *testing.T) {
	for about, c := range map[string]struct {
		memory       int64
		most         int
		local        int
		sent, exceed int // at least, and at most
	}{
		"the number":       {0, 10, 0, 10, 10},
		"all of it":        {0, 1000, 0, 400, 400},
		"memory":           {treeShare * 4096, 1000, 0, 5, 60},
		"most is here":     {0, 1000, 390, treeSample, treeSample},
		"much of it is":    {0, 1000, 30, 400, 400},
		"memory for a few": {1, 1000, 0, 1, 1},
	} {
		s := storeOpen(t, t.TempDir(), storeOptions{DirectoryCacheBytes: c.memory})
		u := newForest(t, 400)
		for i := range c.local {
			storePutDirectory(t, s, storeDirectory(fmt.Sprintf("f:%04d", i)))
		}
		if _, err := s.Through(u).PrefetchTree(t.Context(), u.ds[0], c.most, func() {}); err != nil {
			t.Errorf("%s: %v", about, err)
		}
		if u.sent < c.sent || u.sent > c.exceed {
			t.Errorf("%s: %d directories were read, want %d to %d", about, u.sent, c.sent, c.exceed)
		}
	}
}

// TestTreeEndsWaits: who waits for a directory has it as soon as it comes with a tree, and its own
// fetch is cancelled.
func TestTreeEndsWaits(t *testing.T) {
	s := storeOpen(t, t.TempDir(), storeOptions{})
	u := newForest(t, 3)
	u.begin = make(chan struct{})
	ended := make(chan error, 1)
	go func() {
		_, err := s.Through(u).PrefetchTree(t.Context(), u.ds[0], 1000, func() {})
		ended <- err
	}()
	for s.trees.isQuiet() {
		runtime.Gosched()
	}
	type got struct {
		dir *tree.Directory
		err error
	}
	waited := make(chan got, 2)
	for range 2 {
		go func() {
			dir, err := s.Through(u).Directory(t.Context(), u.ds[1])
			waited <- got{dir, err}
		}()
	}
	<-u.fetching
	close(u.begin)
	for range 2 {
		if g := <-waited; g.err != nil || g.dir.Len() != 1 {
			t.Errorf("%v, %v", g.dir, g.err)
		}
	}
	<-u.given
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := len(s.trees.awaited); n > 0 {
		t.Errorf("%d directories are still awaited", n)
	}
	// Without a tree the caller waits for its fetch.
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-u.fetching; cancel() }()
	if _, err := s.Through(u).Directory(ctx, digest.Of(digest.SHA256, []byte("other"))); !errors.Is(err, context.Canceled) {
		t.Errorf("a directory that does not come: %v", err)
	}
}

// isQuiet reports whether no tree is coming.
func (x *trees) isQuiet() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.coming == 0
}

// TestTreesAreUnsupported: not every upstream has trees.
func TestTreesAreUnsupported(t *testing.T) {
	s := storeOpen(t, t.TempDir(), storeOptions{})
	u, ds := storeNewUpstream("text")
	without := newForest(t, 1)
	without.err = status.Error(codes.Unimplemented, "no such call")
	broken := newForest(t, 1)
	broken.err = status.Error(codes.Unavailable, "it is away")
	for about, c := range map[string]struct {
		r           *ReadThrough
		unsupported bool
	}{"no call": {s.Through(u), true}, "no service": {s.Through(without), true}, "broken": {s.Through(broken), false}} {
		if _, err := c.r.PrefetchTree(t.Context(), ds[0], 1000, func() {}); err == nil || errors.Is(err, errors.ErrUnsupported) != c.unsupported {
			t.Errorf("%s: %v", about, err)
		}
	}
}
