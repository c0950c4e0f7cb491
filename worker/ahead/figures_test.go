package ahead

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/records/kind"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/inputs"
)

// A far storage delivers each blob of a call some time after the one before it.
type far struct {
	blobs map[digest.Digest][]byte
	mu    sync.Mutex
	ways  map[digest.Digest]int  // guarded by mu; calls in which a blob is on its way
	some  map[digest.Digest]bool // guarded by mu; blobs of which something has come
}

func (s *far) Fetch(ctx context.Context, ds []digest.Digest, sink func(digest.Digest, io.Reader) error) error {
	s.note(ds, 1)
	defer s.note(ds, -1)
	for i, d := range ds {
		pause := 10 * time.Millisecond
		if i > 0 {
			pause = time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := sink(d, bytes.NewReader(s.blobs[d])); err != nil {
			return err
		}
	}
	return nil
}

func (s *far) note(ds []digest.Digest, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		s.ways[d] += n
	}
}

func (s *far) onItsWay(d digest.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ways[d] > 0 || s.some[d]
}

func (s *far) put(b []byte) digest.Digest {
	d := digest.Of(digest.SHA256, b)
	s.blobs[d] = b
	return d
}

// tree makes a random tree, in which files often have the same content, and returns its root and
// the blobs of its files.
func (s *far) tree(t *testing.T, random *rand.Rand, path string, depth int, files map[string]digest.Digest) digest.Digest {
	t.Helper()
	m := &repb.Directory{}
	for i := range 1 + random.IntN(8) {
		name := fmt.Sprintf("f%d", i)
		size := 1 + random.IntN(2000)
		if random.IntN(12) == 0 {
			size = 600_000 + random.IntN(3_000_000) // which is not read ahead by nearness
		}
		content := bytes.Repeat([]byte{byte(random.IntN(256))}, size)
		if random.IntN(4) == 0 {
			content = bytes.Repeat([]byte{'c'}, random.IntN(4))
		}
		d := s.put(content)
		files[path+name] = d
		m.Files = append(m.Files, &repb.FileNode{Name: name, Digest: d.Proto()})
	}
	for i := range random.IntN(4) * min(depth, 1) {
		name := fmt.Sprintf("z%d", i)
		d := s.tree(t, random, path+name+"/", depth-1, files)
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: name, Digest: d.Proto()})
	}
	_, encoded, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		t.Fatal(err)
	}
	return s.put(encoded)
}

// FetchRange delivers a blob in pieces.
func (s *far) FetchRange(ctx context.Context, d digest.Digest, part span.Span, w io.Writer) error {
	s.note([]digest.Digest{d}, 1)
	defer s.note([]digest.Digest{d}, -1)
	for piece := range slices.Chunk(s.blobs[d][part.From:part.To], 256<<10) {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
		s.mu.Lock()
		s.some[d] = true
		s.mu.Unlock()
	}
	return nil
}

type memory struct {
	mu      sync.Mutex
	records map[record.Key][]byte
}

func (m *memory) Get(_ context.Context, k record.Key) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.records[k]
	if !ok {
		return nil, record.ErrNotFound
	}
	return b, nil
}

func (m *memory) Put(_ context.Context, k record.Key, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records[k] = value
	return nil
}

// TestFigures has commands open files of random trees, with random profiles and stores. It compares
// the figures with what the test recorded: for each opened file, whether it was in the store or on
// its way from storage.
func TestFigures(t *testing.T) {
	var all prefetch.Figures
	for seed := range uint64(40) {
		got, want := figures(t, rand.New(rand.NewPCG(seed, 20)))
		if got != want {
			t.Errorf("seed %d: %+v, want %+v", seed, got, want)
		}
		all.Foreseen.Files += want.Foreseen.Files
		all.Late.Files += want.Late.Files
		all.Missed.Files += want.Missed.Files
		all.Local.Files += want.Local.Files
		all.Unused.Files += want.Unused.Files
	}
	if min(all.Foreseen.Files, all.Late.Files, all.Missed.Files, all.Local.Files, all.Unused.Files) < 20 {
		t.Errorf("too little happened: %+v", all)
	}
}

// fill puts some blobs into a store, and returns which.
func (s *far) fill(t *testing.T, random *rand.Rand, store *disk.Store, isFile map[digest.Digest]bool) map[digest.Digest]bool {
	t.Helper()
	before := map[digest.Digest]bool{}
	files, directories := random.IntN(60), random.IntN(100)
	for _, d := range slices.SortedFunc(maps.Keys(s.blobs), func(a, b digest.Digest) int { return strings.Compare(a.Hash(), b.Hash()) }) {
		share := directories
		if isFile[d] {
			share = files
		}
		if d.IsEmptyBlob() || random.IntN(100) >= share {
			continue
		}
		before[d] = true
		if err := store.Put(t.Context(), d, bytes.NewReader(s.blobs[d])); err != nil {
			t.Fatal(err)
		}
	}
	return before
}

// profilesOf returns profiles of an action that are unrelated to what it will read.
func profilesOf(t *testing.T, random *rand.Rand, a prefetch.Action, paths []string) *prefetch.Profiles {
	t.Helper()
	profiles := prefetch.NewProfiles(&memory{records: map[record.Key][]byte{}}, prefetch.ProfilesOptions{})
	if random.IntN(4) == 0 {
		return profiles
	}
	if random.IntN(3) == 0 {
		a.Digest = digest.Of(digest.SHA256, []byte("an action like it"))
	}
	var ran prefetch.Recorder
	share := random.IntN(100)
	for _, path := range paths {
		if random.IntN(100) < share {
			ran.Read(path, vfs.File)
		}
	}
	profiles.Learn(t.Context(), a, ran.Hashes(), prefetch.Inputs{})
	return profiles
}

func figures(t *testing.T, random *rand.Rand) (got, want prefetch.Figures) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store, err := disk.Open(dir, disk.Options{MaxBytes: 1 << 30})
		if err != nil {
			t.Fatal(err)
		}
		group, err := fetch.NewGroup(store, fetch.Options{ArriveAbove: 2 << 20})
		if err != nil {
			t.Fatal(err)
		}
		s := &far{blobs: map[digest.Digest][]byte{}, ways: map[digest.Digest]int{}, some: map[digest.Digest]bool{}}
		files := map[string]digest.Digest{}
		root := s.tree(t, random, "", 3, files)
		paths := slices.Sorted(maps.Keys(files))

		isFile := map[digest.Digest]bool{}
		for _, d := range files {
			isFile[d] = true
		}
		before := s.fill(t, random, store, isFile)
		action := prefetch.Action{Digest: digest.Of(digest.SHA256, []byte("action")), Kind: kind.Kind{Tool: "tool"}}
		profiles := profilesOf(t, random, action, paths)
		through := group.Through(s)
		f := Start(t.Context(), Spec{Action: prefetch.Action{Digest: action.Digest}, Root: root, Inputs: through, Profiles: profiles})
		f.KnowCommand([]string{"tool"}, ".")
		source := inputs.Source{ReadThrough: through, Verifier: store.Verifier(), Opened: f.Opened}
		opened := map[digest.Digest]bool{}
		pause := time.Duration(random.IntN(10)) * time.Millisecond
		for range random.IntN(2 * len(paths)) {
			time.Sleep(pause * time.Duration(random.IntN(3)))
			path := paths[random.IntN(len(paths))]
			d := files[path]
			synctest.Wait()
			if size := d.SizeBytes(); !opened[d] && size > 0 {
				to := &want.Missed
				switch {
				case before[d]:
					to = &want.Local
				case store.Has(d):
					to = &want.Foreseen
				case s.onItsWay(d):
					to = &want.Late
				}
				to.Files, to.Bytes = to.Files+1, to.Bytes+size
			}
			opened[d] = true
			f.Used(d) // as a root tells it
			file, arrival, err := source.OpenArriving(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			if arrival != nil {
				err = arrival.Wait(t.Context())
				arrival.Close()
			} else {
				err = file.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			f.Hook()(path, vfs.File)
		}
		if random.IntN(2) == 0 {
			time.Sleep(time.Second)
		}
		f.End()
		got = f.Figures()
		for d := range isFile {
			if d.SizeBytes() > 0 && store.Has(d) && !before[d] && !opened[d] {
				want.Unused.Files, want.Unused.Bytes = want.Unused.Files+1, want.Unused.Bytes+d.SizeBytes()
			}
		}
		group.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return got, want
}
