package prefetch

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// foldersOf returns the paths of a file in each of so many folders, one in another, of some trees.
func foldersOf(trees, levels int) (paths []string) {
	for i := range trees {
		for j := range levels {
			paths = append(paths, fmt.Sprintf("t%d/%sfile%d", i, strings.Repeat("d/", j), i))
		}
	}
	return paths
}

// TestTreesComeAtOnce: the directories of all levels are local after a round trip for the root, which
// is early, and one for the others. Storage that sends no trees is asked once.
func TestTreesComeAtOnce(t *testing.T) {
	const levels = 20
	for _, c := range []struct {
		about              string
		trees, unsupported int
		profile            *Profile
		calls              int // for trees
		trips              int // at least, and at most two more
	}{
		{about: "a tree", trees: 1, calls: 1, trips: 1},
		{about: "some", trees: maxTrees, calls: maxTrees, trips: 1},
		{about: "the first ones", trees: 2 * maxTrees, calls: maxTrees, trips: 1},
		{about: "none", trees: 1, unsupported: -1, trips: levels},
		{about: "with a profile", trees: 1, profile: profileOf(foldersOf(1, levels)...), calls: 1, trips: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStorage()
			s.trees = c.unsupported
			root := s.put(t, foldersOf(c.trees, levels)...)
			s.local[root] = true
			limits := NewLimits(LimitsOptions{})
			r := Start(t.Context(), Spec{Root: root, Source: s, Profile: c.profile, Limits: limits})
			began, deepest := time.Now(), s.at(t, root, "t0/"+strings.Repeat("d/", levels-2)+"d")
			for !s.has(deepest) {
				time.Sleep(roundTrip)
				synctest.Wait()
			}
			if trips := int(time.Since(began) / roundTrip); trips < c.trips || trips > c.trips+2 {
				t.Errorf("%s: %d round trips, want %d", c.about, trips, c.trips)
			}
			time.Sleep(levels * roundTrip) // for the other trees
			stats := r.Stop()
			if s.trees != c.calls+c.unsupported || limits.trees.unsupported.Load() != (c.unsupported < 0) {
				t.Errorf("%s: %d calls for trees", c.about, s.trees)
			}
			if want := int64(c.trees * levels); stats.Directories.Files != want {
				t.Errorf("%s: %d directories count as fetched, want %d", c.about, stats.Directories.Files, want)
			}
		})
	}
}

// TestTreesLeaveTheRest: what a tree did not bring comes level by level.
func TestTreesLeaveTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const levels = 12
		s := newStorage()
		s.trees = 0
		root := s.put(t, foldersOf(1, levels)...)
		s.local[root] = true
		cut := s.at(t, root, "t0/d/d/d")
		delete(s.remote, cut) // it is missing for the tree, and comes back
		r := Start(t.Context(), Spec{Root: root, Source: s})
		time.Sleep(roundTrip / 2)
		s.mu.Lock()
		s.remote[cut] = true
		s.mu.Unlock()
		time.Sleep(2 * levels * roundTrip)
		synctest.Wait()
		if !s.has(s.at(t, root, "t0/"+strings.Repeat("d/", levels-2)+"d")) {
			t.Error("the deepest directory did not come")
		}
		r.Stop()
	})
}

// TestHangingTreesAreNotRequested: storage whose trees hang delays the first actions only, and is
// tried again now and then.
func TestHangingTreesAreNotRequested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const levels, skipped = 4, 3
		s := newStorage()
		s.trees, s.hang = 0, true
		limits := NewLimits(LimitsOptions{})
		run := func(i int) (early bool) {
			paths := foldersOf(maxTrees, levels)
			for j, path := range paths {
				paths[j] = fmt.Sprintf("%s-%d", path, i) // other ones than before
			}
			root := s.put(t, paths...)
			s.local[root] = true
			r := Start(t.Context(), Spec{Root: root, Source: s, Limits: limits})
			time.Sleep(2 * levels * roundTrip)
			synctest.Wait()
			early = s.has(s.at(t, root, "t0/"+strings.Repeat("d/", levels-2)+"d"))
			time.Sleep(2 * treeTime)
			r.Stop()
			return early
		}
		for i := range maxLate/maxTrees + skipped {
			if early := run(i); early != (i >= maxLate/maxTrees) {
				t.Errorf("action %d has its directories early: %t", i, early)
			}
		}
		if s.trees != maxLate {
			t.Errorf("%d calls for trees that hang, want %d", s.trees, maxLate)
		}
		s.hang = false
		for i := range treeRetry { // the first ones skip theirs, until it is tried
			run(100 + i)
		}
		if want := maxLate + (skipped+1)*maxTrees; s.trees != want {
			t.Errorf("%d calls for trees when they come again, want %d", s.trees, want)
		}
	})
}
