package prefetch

import (
	"maps"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// modelRun is a run in the obvious model of a history: a list of runs, oldest first.
type modelRun struct {
	id    uint64
	paths []PathHash
}

func modelWith(runs []modelRun, run modelRun, s shape) []modelRun {
	if s.distinct {
		if i := slices.IndexFunc(runs, func(r modelRun) bool { return r.id == run.id }); i >= 0 {
			runs = slices.Clone(runs)
			runs[i] = run
			return runs
		}
	}
	runs = append(slices.Clone(runs), run)
	return runs[max(0, len(runs)-s.runs):]
}

func modelReaders(runs []modelRun) map[PathHash]int {
	readers := map[PathHash]int{}
	for _, run := range runs {
		for _, path := range run.paths {
			readers[path]++
		}
	}
	return readers
}

func TestHistoryAgainstModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range []shape{
		{runs: 1, paths: 100},
		{runs: 4, paths: 100},
		{runs: 4, paths: 100, distinct: true},
		{runs: maxRuns, paths: 100, distinct: true},
	} {
		var h *history
		var model []modelRun
		for range 500 {
			run := modelRun{id: 1 + random.Uint64N(40)}
			for path := range PathHash(20) {
				if random.IntN(3) > 0 {
					run.paths = append(run.paths, path)
				}
			}
			if len(run.paths) == 0 {
				continue
			}
			next, changed := h.with(run.id, readingOf(run.paths), s)
			if !changed && !maps.Equal(modelReaders(modelWith(model, run, s)), modelReaders(model)) {
				t.Fatalf("%+v: a run that changes something is taken for old", s)
			}
			if changed {
				model = modelWith(model, run, s)
			}
			h = next
			want := modelReaders(model)
			got := map[PathHash]int{}
			for i, path := range h.paths {
				got[path] = bits.OnesCount32(h.readers[i])
			}
			if !maps.Equal(got, want) {
				t.Fatalf("%+v: paths and readers %v, want %v", s, got, want)
			}
			for n := range s.runs + 1 {
				for _, path := range h.readByAtLeast(n + 1) {
					if want[path] <= n {
						t.Fatalf("%+v: path %d has %d readers, not %d", s, path, want[path], n+1)
					}
				}
			}
			h = throughMessage(t, h, s)
		}
	}
}

// throughMessage returns h after it was stored.
func throughMessage(t *testing.T, h *history, s shape) *history {
	t.Helper()
	b, err := proto.Marshal(h.message())
	if err != nil {
		t.Fatal(err)
	}
	var m profiles.History
	if err := proto.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	back := parseHistory(&m, s)
	if back == nil || !slices.Equal(back.paths, h.paths) || !slices.Equal(back.readers, h.readers) ||
		!slices.Equal(back.ranks, h.ranks) ||
		!slices.Equal(back.runs, h.runs) || back.newest != h.newest {
		t.Fatalf("%+v came back as %+v", h, back)
	}
	return back
}

// TestHistoryTrims drops the paths that the fewest runs read.
func TestHistoryTrims(t *testing.T) {
	s := shape{runs: 4, paths: 3, distinct: true}
	var h *history
	for id, paths := range [][]PathHash{{1, 2, 3}, {1, 2, 4}, {1, 5, 6}} {
		h, _ = h.with(uint64(id+1), readingOf(paths), s)
		if len(h.paths) != 3 {
			t.Errorf("%d paths are kept", len(h.paths))
		}
	}
	if !slices.Equal(h.paths[:2], []PathHash{1, 2}) {
		t.Errorf("%v are kept", h.paths)
	}
	// The history of one action rather begins anew than lose a path of the last run.
	s.distinct = false
	h = nil
	for _, paths := range [][]PathHash{{1, 2, 3}, {1, 2, 4}} {
		h, _ = h.with(1, readingOf(paths), s)
	}
	if !slices.Equal(h.paths, []PathHash{1, 2, 4}) || len(h.runs) != 1 {
		t.Errorf("%v of %d runs are kept", h.paths, len(h.runs))
	}
}

// FuzzParseRecord has values of a store that anybody could have written.
func FuzzParseRecord(f *testing.F) {
	p := NewProfiles(&fakeStore{}, ProfilesOptions{})
	k, _ := (&knowledge{}).learn(1, readingOf([]PathHash{3, 2, 1}), p.exact)
	k, _ = k.learn(2, readingOf([]PathHash{1, 5}), p.exact)
	value, err := k.marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(value)
	f.Add(value[:len(value)/2])
	f.Fuzz(func(t *testing.T, value []byte) {
		run := []PathHash{1, 2, RootHash}
		for _, r := range []rules{p.exact, p.coarse} {
			k := r.parse(value, digest.SHA256)
			k.profile()
			next, _ := k.learn(7, readingOf(run), r)
			if next.filter == nil {
				t.Fatal("nothing was learnt")
			}
			if r.shape.distinct {
				continue // others may outvote one run
			}
			for _, h := range run {
				if !next.filter().Contains(h) {
					t.Fatalf("%#x is not remembered", h)
				}
			}
			again, err := next.marshal()
			if err != nil {
				t.Fatal(err)
			}
			if back := r.parse(again, digest.SHA256); back.filter == nil || !back.filter().Contains(RootHash) {
				t.Fatal("what was learnt does not come back")
			}
		}
	})
}
