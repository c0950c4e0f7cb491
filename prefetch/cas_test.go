package prefetch

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/fetch"
)

var _ Source = (*fetch.ReadThrough)(nil)

// far is a storage that is one round trip away, of which a Store keeps a part.
type far struct {
	store *disk.Store
	gap   time.Duration // between the blobs of a call
	mu    sync.Mutex
	calls int // guarded by mu
}

func (f *far) Fetch(ctx context.Context, ds []digest.Digest, sink func(digest.Digest, io.Reader) error) error {
	f.mu.Lock()
	f.calls++
	f.mu.Unlock()
	select {
	case <-time.After(roundTrip):
	case <-ctx.Done():
		return ctx.Err()
	}
	for i, d := range ds {
		if i > 0 && f.gap > 0 {
			time.Sleep(f.gap)
		}
		file, err := f.store.OpenBlob(ctx, d)
		if err != nil {
			return err
		}
		err = sink(d, file)
		_ = file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// sdk fills a store with a tree of about the shape of a Go SDK, which has ten levels, 166 wide: so many
// levels, of one directory and width below it, each with nine files. It returns all files.
func sdk(t testing.TB, s *disk.Store, levels, width int) (root digest.Digest, paths []string) {
	t.Helper()
	put := func(b []byte) *repb.Digest {
		d := digest.Of(digest.SHA256, b)
		if err := s.PutBytes(t.Context(), d, b); err != nil {
			t.Fatal(err)
		}
		return d.Proto()
	}
	directory := func(path string) *repb.Directory {
		m := &repb.Directory{}
		for i := range 9 {
			file := fmt.Sprintf("%sfile%d", path, i)
			m.Files = append(m.Files, &repb.FileNode{Name: fmt.Sprintf("file%d", i), Digest: put([]byte(file))})
			paths = append(paths, file)
		}
		return m
	}
	var below *repb.Directory
	for level := levels - 1; level >= 0; level-- {
		path := ""
		for range level {
			path += "level/"
		}
		m := directory(path)
		add := func(name string, child *repb.Directory) {
			d, encoded, err := digest.OfMessage(digest.SHA256, child)
			if err != nil {
				t.Fatal(err)
			}
			put(encoded)
			m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: d.Proto()})
		}
		for i := range width {
			name := fmt.Sprintf("dir%03d", i)
			add(name, directory(path+name+"/"))
		}
		if below != nil {
			add("level", below)
		}
		below = m
	}
	root, encoded, err := digest.OfMessage(digest.SHA256, below)
	if err != nil {
		t.Fatal(err)
	}
	put(encoded)
	return root, paths
}

func openStore(t testing.TB) *disk.Store {
	t.Helper()
	s, err := disk.Open(t.TempDir(), disk.Options{MaxBytes: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func groupOf(t testing.TB, s *disk.Store) *fetch.Group {
	t.Helper()
	x, err := fetch.NewGroup(s, fetch.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func openAt(t testing.TB, s *fetch.ReadThrough, root digest.Digest, path string) {
	t.Helper()
	dir, err := s.Directory(t.Context(), root)
	for err == nil {
		var name string
		name, path = cut(path)
		e, ok := dir.Find(name)
		if !ok {
			t.Fatalf("%s is not there", name)
		}
		if path == "" {
			file, err := s.OpenBlob(t.Context(), e.Digest)
			if err != nil {
				t.Fatal(err)
			}
			_ = file.Close()
			return
		}
		dir, err = s.Directory(t.Context(), e.Digest)
	}
	t.Fatal(err)
}

func cut(path string) (name, rest string) {
	for i := range path {
		if path[i] == '/' {
			return path[:i], path[i+1:]
		}
	}
	return path, ""
}

// inStore calls f in a bubble of synctest with an empty store.
func inStore(t *testing.T, f func(t *testing.T, s *disk.Store, fetches *fetch.Group)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, err := disk.Open(dir, disk.Options{MaxBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		fetches := groupOf(t, s)
		f(t, s, fetches)
		fetches.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Over a real store: one trip for each level and one for the files of the last, and
// an open that comes meanwhile waits for no more than its own trips.
func TestRaceThroughStore(t *testing.T) {
	const levels = 9
	upstream := &far{store: openStore(t)}
	root, paths := sdk(t, upstream.store, levels, 40)
	inStore(t, func(t *testing.T, s *disk.Store, fetches *fetch.Group) {
		through := fetches.Through(upstream)
		profile := profileOf(paths[:len(paths)/2]...)
		began := time.Now()
		r := Start(t.Context(), Spec{Root: root, Source: through, Profile: profile})
		time.Sleep(5*roundTrip + roundTrip/2)
		asked := time.Now()
		openAt(t, through, root, paths[len(paths)-1])
		if trips := time.Since(asked) / roundTrip; trips != 2 {
			t.Errorf("%d round trips for a file and its directory, neither of them foreseen", trips)
		}
		time.Sleep(time.Until(began.Add((levels+2)*roundTrip + roundTrip/2)))
		stats := r.Stop()
		missing, err := s.FindMissing(t.Context(), contentsOf(paths[:len(paths)/2]))
		if err != nil || len(missing) > 0 || int(stats.Files.Files) < len(paths)/2-1 {
			t.Errorf("%d are missing of %+v, %v", len(missing), stats, err)
		}
	})
}

// The walk asks for directories that are remembered, too, and on their way: that they soon are there
// does not make the round trip short.
func TestPaceOfWhatIsOnItsWay(t *testing.T) {
	upstream := &far{store: openStore(t), gap: roundTrip / 1000}
	root, paths := sdk(t, upstream.store, 1, 166)
	inStore(t, func(t *testing.T, _ *disk.Store, fetches *fetch.Group) {
		with := *profileOf(paths...)
		with.directories = Directories(groupOf(t, upstream.store).Through(nil).LocalDirectory, root, with.Contains)
		limits := NewLimits(LimitsOptions{})
		r := Start(t.Context(), Spec{Root: root, Source: fetches.Through(upstream), Profile: &with, Limits: limits})
		time.Sleep(20 * roundTrip)
		stats := r.Stop()
		if trip := limits.pace.trip; trip < roundTrip || stats.Directories.Files < 160 {
			t.Errorf("a round trip of %s, after %d directories, want %s", trip, stats.Directories.Files, roundTrip)
		}
	})
}

// contentsOf returns the blobs of these files of sdk.
func contentsOf(paths []string) []digest.Digest {
	ds := make([]digest.Digest, len(paths))
	for i, path := range paths {
		ds[i] = digest.Of(digest.SHA256, []byte(path))
	}
	return ds
}

// What a Race costs when there is nothing to win: about 15,000 files in 1,670
// directories, all local.
func BenchmarkWarm(b *testing.B) {
	s := openStore(b)
	root, paths := sdk(b, s, 10, 166)
	for _, bench := range []struct {
		name    string
		profile *Profile
	}{
		{"all foreseen", profileOf(paths...)},
		{"third foreseen", profileOf(slices.DeleteFunc(slices.Clone(paths), func(p string) bool {
			return HashPath(p)%3 > 0
		})...)},
		{"no profile", nil},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := Start(b.Context(), Spec{Root: root, Source: groupOf(b, s).Through(nil), Profile: bench.profile})
				r.walk(b.Context(), bench.profile, nil, maxDirectories) // once more, to know when it has ended
				if got := r.Stop(); got.Files.Files > 0 {
					b.Fatal("fetched what is there")
				}
			}
			b.ReportMetric(float64(len(paths)), "files")
		})
	}
}
