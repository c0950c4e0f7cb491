package vfs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/vfs/fuse"
	"github.com/forerunner-build/forerunner/vfs/vfstest"
)

// arrivingSource is a vfstest.Source with one blob that arrives as the test says.
type arrivingSource struct {
	*vfstest.Source
	digest  digest.Digest
	content string

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
	have    [][2]int64    // the ranges that have arrived
	whole   bool
	err     error
	opens   int // Arrivals that were given out
	holders int // those not closed
	reads   int
}

const arrivingSize = 4 << 20

func newArrivingSource(t testing.TB) *arrivingSource {
	content := strings.Repeat("0123456789abcde\n", arrivingSize/16-1) + "the end"
	s := &arrivingSource{Source: vfstest.NewSource(t), content: content, changed: make(chan struct{})}
	s.digest = s.Blob(t, content)
	return s
}

// root has the blob at "large" and "other".
func (s *arrivingSource) root(t testing.TB) digest.Digest {
	return s.Add(t, &repb.Directory{Files: []*repb.FileNode{
		{Name: "large", Digest: s.digest.Proto()},
		{Name: "other", Digest: s.digest.Proto()},
		{Name: "small", Digest: s.Blob(t, "small").Proto()},
	}})
}

func (s *arrivingSource) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *arrivingSource) deliver(from, to int64) {
	s.change(func() { s.have = append(s.have, [2]int64{from, to}) })
}
func (s *arrivingSource) finish()            { s.change(func() { s.whole = true }) }
func (s *arrivingSource) failWith(err error) { s.change(func() { s.err = err }) }

func (s *arrivingSource) counts() (opens, holders, reads int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opens, s.holders, s.reads
}

func (s *arrivingSource) OpenArriving(ctx context.Context, d digest.Digest) (*os.File, Arrival, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d != s.digest || s.whole {
		file, err := s.OpenBlob(ctx, d)
		return file, nil, err
	}
	s.opens++
	s.holders++
	return nil, &fakeArrival{s}, nil
}

type fakeArrival struct{ *arrivingSource }

// until waits until ok, which is called with the lock, or ctx ends.
func (a fakeArrival) until(ctx context.Context, ok func() bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.err == nil && !ok() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		a.mu.Lock()
	}
	return a.err
}

func (a fakeArrival) ReadAt(ctx context.Context, p []byte, off int64) (int, error) {
	n := min(int64(len(p)), int64(len(a.content))-off)
	if n <= 0 {
		return 0, io.EOF
	}
	if err := a.until(ctx, func() bool {
		for _, h := range a.have {
			if h[0] <= off && off+n <= h[1] {
				a.reads++
				return true
			}
		}
		return a.whole
	}); err != nil {
		return 0, err
	}
	return copy(p[:n], a.content[off:]), nil
}

func (a fakeArrival) Wait(ctx context.Context) error {
	return a.until(ctx, func() bool { return a.whole })
}

func (a fakeArrival) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holders--
}

func openFile(t testing.TB, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// wantAt fails the test unless reading n bytes at off returns the bytes that exist.
func (s *arrivingSource) wantAt(t testing.TB, f *os.File, off int64, n int) {
	t.Helper()
	p := make([]byte, n)
	if _, err := f.ReadAt(p, off); err != nil || string(p) != s.content[off:][:n] {
		t.Errorf("read at %d: %q…, %v", off, p[:min(n, 20)], err)
	}
}

// waitSettled waits until the root has dealt with the end of the arrival.
func waitSettled(t testing.TB, r *Root, s *arrivingSource) {
	t.Helper()
	waitUntil(t, "the end of the arrival", func() bool {
		return r.inputs.Blob(s.digest).Arrival != fuse.Awaited
	})
}

// backed reports whether the blob is one that needs no Arrival.
func backed(r *Root, d digest.Digest) bool {
	b := r.inputs.Blob(d)
	return b.Whole && b.Arrival == fuse.NoArrival && b.InKernel == r.fs.Passthrough()
}

func TestReadsWhatHasArrived(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := newArrivingSource(t)
		r := openRoot(t, f, RootSpec{Digest: src.root(t), Source: src})
		file := openFile(t, filepath.Join(r.Path(), "large"))
		src.deliver(0, 1<<20)
		src.wantAt(t, file, 0, 100)
		// A random offset, while what is before it is missing.
		src.deliver(3<<20, 4<<20)
		src.wantAt(t, file, 3<<20, 4096)
		if in, ok := r.Unchanged("large"); !ok || in.Digest != src.digest {
			t.Errorf("unchanged: %v, %t", in, ok)
		}

		before := r.Stalled()
		var got []byte
		var g errgroup.Group
		g.Go(func() (err error) {
			got, err = io.ReadAll(io.NewSectionReader(file, 0, arrivingSize))
			return err
		})
		waitUntil(t, "a read that waits", func() bool { return r.Stalled() > before })
		src.deliver(1<<20, 2<<20)
		src.finish()
		if err := g.Wait(); err != nil || string(got) != src.content {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
		if err := r.Verify(t.Context()); err != nil {
			t.Error(err)
		}
		if got := r.Stats(); got.FilesRead != 1 || got.BytesRead != src.digest.SizeBytes() {
			t.Errorf("stats: %+v", got)
		}
	})
}

// While a file is open the old way the kernel refuses passthrough for it.
func TestNextOpenOfWhatArrivedIsPassthrough(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := newArrivingSource(t)
		r := openRoot(t, f, RootSpec{Digest: src.root(t), Source: src})
		path := filepath.Join(r.Path(), "large")
		file := openFile(t, path)
		src.deliver(0, 1<<20)
		src.wantAt(t, file, 0, 100)
		src.finish()
		waitSettled(t, r, src)
		again, other := openFile(t, path), openFile(t, filepath.Join(r.Path(), "other"))
		for _, file := range []*os.File{file, again, other} {
			src.wantAt(t, file, 2<<20, 1000)
		}
		if b := r.inputs.Blob(src.digest); !b.Whole || b.Users != 1 {
			t.Errorf("the other path was not opened as a whole file: %+v", b)
		}
		_, holders, _ := src.counts()
		if holders != 1 {
			t.Errorf("%d arrivals are held", holders)
		}
		_, _ = file.Close(), again.Close()
		waitUntil(t, "the release", func() bool { return backed(r, src.digest) })
		opens, holders, reads := src.counts()
		if opens != 1 || holders != 0 {
			t.Errorf("%d arrivals were opened, %d are held", opens, holders)
		}
		src.wantAt(t, openFile(t, path), 3<<20, 1000)
		if got, err := os.ReadFile(path); err != nil || string(got) != src.content {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
		if _, _, now := src.counts(); now != reads {
			t.Error("the whole file is read as one that arrives")
		}
		if err := r.Err(); err != nil {
			t.Error(err)
		}
	})
}

func TestMapsWhatArrives(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		h := startChild(t, "helper")
		src := newArrivingSource(t)
		r := openRoot(t, f, RootSpec{Digest: src.root(t), Source: src})
		src.deliver(0, 1<<20)
		if got := h.do("holdmap", filepath.Join(r.Path(), "large")); got != "ok" {
			t.Fatalf("map: %s", got)
		}
		if got := h.do("touch"); got != "0" {
			t.Errorf("first byte: %s", got)
		}
		h.ask("map", filepath.Join(r.Path(), "other"))
		src.deliver(1<<20, 2<<20)
		src.finish()
		want := brief([]byte(src.content))
		if got := h.answer(); got != want {
			t.Errorf("mapped %.100s, want %s", got, want)
		}
		if got := h.do("read", filepath.Join(r.Path(), "large")); got != want {
			t.Errorf("read %.100s beside the map, want %s", got, want)
		}
	})
}

func TestFileWhoseDigestLies(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		h := startChild(t, "helper")
		src := newArrivingSource(t)
		r := openRoot(t, f, RootSpec{Digest: src.root(t), Source: src})
		path, other := filepath.Join(r.Path(), "large"), filepath.Join(r.Path(), "other")
		file := openFile(t, path)
		src.deliver(0, 1<<20)
		src.wantAt(t, file, 0, 4096)
		if got := h.do("holdmap", other); got != "ok" {
			t.Fatalf("map: %s", got)
		}
		if got := h.do("touch"); got != "0" {
			t.Fatalf("first byte: %s", got)
		}
		var waiting errgroup.Group
		waiting.Go(func() error {
			_, err := file.ReadAt(make([]byte, 10), 3<<20)
			return err
		})
		lie := errors.New("the digest lies")
		src.failWith(lie)
		if err := waiting.Wait(); !isEIO(err) {
			t.Errorf("who waited got %v", err)
		}
		if err := r.Verify(t.Context()); !errors.Is(err, lie) || !strings.Contains(err.Error(), "large") {
			t.Errorf("verify: %v", err)
		}
		if err := r.Err(); !errors.Is(err, lie) {
			t.Errorf("error of the root: %v", err)
		}
		if _, err := file.ReadAt(make([]byte, 10), 0); !isEIO(err) {
			t.Errorf("what was read before: %v", err)
		}
		if got := h.do("touch"); !strings.HasPrefix(got, "error: fault") {
			t.Errorf("what was mapped before: %s", got)
		}
		for _, p := range []string{path, other} {
			if _, err := os.Open(p); !isEIO(err) {
				t.Errorf("open of %s: %v", p, err)
			}
		}
		if got, err := os.ReadFile(filepath.Join(r.Path(), "small")); string(got) != "small" || err != nil {
			t.Errorf("another file: %q, %v", got, err)
		}
		if opens, _, _ := src.counts(); opens != 1 {
			t.Errorf("the Source was asked %d times", opens)
		}
	})
}

// The command may have ended long before its inputs are verified.
func TestVerifyWaitsForWhatWasRead(t *testing.T) {
	f := openFS(t, Options{})
	src := newArrivingSource(t)
	r := openRoot(t, f, RootSpec{Digest: src.root(t), Source: src})
	file := openFile(t, filepath.Join(r.Path(), "large"))
	if err := r.Verify(t.Context()); err != nil {
		t.Errorf("nothing was read: %v", err)
	}
	src.deliver(0, 1<<20)
	src.wantAt(t, file, 0, 100)
	_ = file.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := r.Verify(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("what was read is not verified: %v", err)
	}
	if _, holders, _ := src.counts(); holders != 1 {
		t.Errorf("after the last close %d arrivals are held", holders)
	}
	var g errgroup.Group
	g.Go(func() error { return r.Verify(t.Context()) })
	src.finish()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
	waitUntil(t, "the arrival to be closed", func() bool {
		_, holders, _ := src.counts()
		return holders == 0
	})
}

func TestKilledReaderOfWhatArrives(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		h := startChild(t, "helper")
		src := newArrivingSource(t)
		r := openRoot(t, f, RootSpec{Digest: src.root(t), Source: src})
		h.ask("read", filepath.Join(r.Path(), "large"))
		waitUntil(t, "a read that waits", func() bool { return r.Stalled() > 0 })
		if err := h.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_, _ = h.cmd.Process.Wait() // returns only if it can die
		if err := r.Err(); err != nil {
			t.Errorf("an access that was given up: %v", err)
		}
	})
}

func TestCloseWhileFilesArrive(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := newArrivingSource(t)
		root := src.root(t)
		r := openRoot(t, f, RootSpec{Digest: root, Source: src})
		file := openFile(t, filepath.Join(r.Path(), "large"))
		var g errgroup.Group
		g.Go(func() error {
			_, err := file.ReadAt(make([]byte, 10), 0)
			return err
		})
		waitUntil(t, "a read that waits", func() bool { return r.Stalled() > 0 })
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if err := g.Wait(); err == nil {
			t.Error("read from a closed root")
		}
		if _, holders, _ := src.counts(); holders != 0 {
			t.Errorf("%d arrivals are held", holders)
		}
		if err := r.Err(); err != nil {
			t.Errorf("the close was taken for a fault: %v", err)
		}
	})
}

func TestRootsShareWhatArrives(t *testing.T) {
	bothWays(t, func(t *testing.T, f *FS) {
		src := newArrivingSource(t)
		root := src.root(t)
		var g errgroup.Group
		var roots []*Root
		for _, name := range []string{"a", "b", "c"} {
			r := openRoot(t, f, RootSpec{Name: name, Digest: root, Source: src})
			roots = append(roots, r)
			for _, path := range []string{"large", "other"} {
				g.Go(func() error {
					got, err := os.ReadFile(filepath.Join(r.Path(), path))
					if err == nil && string(got) != src.content {
						err = errors.New("other bytes")
					}
					return err
				})
			}
		}
		for off := int64(0); off < arrivingSize; off += 1 << 18 {
			src.deliver(0, off)
		}
		src.finish()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		for _, r := range roots {
			if err := r.Verify(t.Context()); err != nil {
				t.Error(err)
			}
			waitUntil(t, "the release", func() bool {
				return r.inputs.Blob(src.digest).Arrival == fuse.NoArrival
			})
		}
		if _, holders, _ := src.counts(); holders != 0 {
			t.Errorf("%d arrivals are held", holders)
		}
	})
}
