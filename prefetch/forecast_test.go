package prefetch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// expectedTree returns paths of files of random trees, some of them large, and those of some of them.
func expectedTree(random *rand.Rand) (paths, some []string) {
	for i := range 1 + random.IntN(60) {
		path := ""
		for range random.IntN(4) {
			path += fmt.Sprintf("d%d/", random.IntN(3))
		}
		path = fmt.Sprintf("%sf%d", path, i)
		if random.IntN(2) == 0 {
			some = append(some, path)
		}
		paths = append(paths, fmt.Sprintf("%s:%d", path, 1+random.IntN(2*largeBytes)))
	}
	return paths, some
}

// TestForecast: a run is judged by what its race saw of the tree as by another look at it, unless the
// race has not seen all of it, or the profile is another one by now.
func TestForecast(t *testing.T) {
	whole := 0
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 3))
			s := newStorage()
			paths, expected := expectedTree(random)
			root := s.put(t, paths...)
			profile := remembering(t, s, root, append(expected, "not/there")...)
			gone := random.IntN(3) == 0
			for d := range s.dirs {
				switch {
				case random.IntN(2) == 0:
					s.local[d] = true
				case gone:
					delete(s.remote, d)
				}
			}
			race := Start(t.Context(), Spec{Root: root, Source: s, Profile: profile})
			if random.IntN(8) > 0 {
				time.Sleep(time.Hour)
				synctest.Wait()
			}
			race.Stop()
			for d := range s.dirs { // the action has waited for them
				s.local[d] = s.local[d] || gone
			}
			var r Recorder
			for _, path := range expected {
				if random.IntN(4) > 0 {
					r.Read(path, tree.File)
				}
			}
			run := Run{Local: s.LocalDirectory, Root: root, Read: r.Has, Forecast: race.Forecast()}
			got, ok := run.share(profile)
			if run.Forecast.isOf(profile) {
				whole++
			}
			if run.Forecast.isOf(profileOf(expected...)) {
				t.Errorf("seed %d: it is that of another profile", seed)
			}
			run.Forecast = Forecast{}
			if want, wantOK := run.share(profile); got != want || ok != wantOK {
				t.Errorf("seed %d: share %v, %t, want %v, %t", seed, got, ok, want, wantOK)
			}
		})
	}
	if whole < 30 {
		t.Errorf("%d races saw the whole tree", whole)
	}
}

// TestFirstFilesModel: the first files are those of the reads, in their order.
func TestFirstFilesModel(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 4))
		s := newStorage()
		paths, read := expectedTree(random)
		root := s.put(t, paths...)
		random.Shuffle(len(read), func(i, j int) { read[i], read[j] = read[j], read[i] })
		gone := map[digest.Digest]bool{}
		for d := range s.dirs {
			gone[d] = random.IntN(8) == 0
		}
		local := func(d digest.Digest) (*tree.Directory, bool) {
			dir, ok := s.dirs[d]
			return dir, ok && !gone[d]
		}
		var r Recorder
		var want []First
		for _, path := range read {
			r.Read(path, tree.File)
			if random.IntN(4) == 0 {
				r.Read(path, tree.File)
				r.Read(path+"/nothing", tree.File)
				r.Read("", tree.Dir)
			}
			d, here := root, true
			for rest := path; rest != ""; {
				here = here && !gone[d]
				var name string
				name, rest = cut(rest)
				e, _ := s.dirs[d].Find(name)
				d = e.Digest
			}
			if here && d.SizeBytes() <= largeBytes {
				want = append(want, First{HashPath(path), d})
			}
		}
		want = want[:withinFirst(want)]
		if got := r.FirstFiles(local, root); !slices.Equal(got, want) {
			t.Errorf("seed %d: %v, want %v", seed, got, want)
		}
	}
}
