package prefetch

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// readingParts is the profile of a run that read these parts of files below root, by way of a
// store.
func readingParts(t *testing.T, s *storage, root digest.Digest, parts map[string]span.Set) *Profile {
	t.Helper()
	records := &fakeStore{}
	var r Recorder
	var reads PartReads
	for path, set := range parts {
		r.Read(path, tree.File)
		for _, p := range set {
			reads.Read(s.at(t, root, path), p.From, p.To-p.From)
		}
	}
	learning := NewProfiles(records, ProfilesOptions{})
	learning.Learn(t.Context(), actionOf("a"), r.Hashes(), Inputs{}, reads.Seen(s.everywhere, root, r.Has)...)
	p, origin := NewProfiles(records, ProfilesOptions{}).Find(t.Context(), actionOf("a"))
	if p == nil || origin != Exact {
		t.Fatal("nothing is remembered")
	}
	return p
}

// A Race asks for the parts that the last run read of large files, before it asks for the whole of
// them: where the blob is the same, wherever it is now, and where another of about the same size is
// at its path. They are kept until it stops.
func TestRaceAsksForParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		before := s.put(t, "lib/modules:134217728", "same:134217728", "grown:100000000", "other:100000000", "small:900000")
		some := span.Set{{From: 0, To: 5}, {From: 10 << 20, To: 10<<20 + 100_000}, {From: 90<<20 + 1, To: 90<<20 + 2}}
		profile := readingParts(t, s, before, map[string]span.Set{
			"lib/modules": some, "same": some, "grown": some, "other": some, "small": {{From: 0, To: 5}},
		})
		now := s.put(t, "lib/modules:134217728", "same:134217728", "grown:101000000", "other:50000000", "small:900000")
		clear(s.local)
		r := Start(t.Context(), Spec{Root: now, Source: s, Profile: profile, Limits: wideLimits(LimitsOptions{})})
		synctest.Wait()
		for range 20 {
			synctest.Wait()
			time.Sleep(roundTrip)
		}
		wantParts := []span.Span{
			{From: 0, To: chunkBytes}, {From: 10 << 20, To: 10<<20 + 2*chunkBytes}, {From: 90 << 20, To: 90<<20 + chunkBytes},
		}
		got := map[digest.Digest]partedCall{}
		for _, c := range s.parts {
			if _, again := got[c.digest]; again {
				t.Errorf("parts of %s were asked for again", c.digest)
			}
			got[c.digest] = c
		}
		wholes := 0
		for _, path := range []string{"lib/modules", "same", "grown"} {
			d := s.at(t, now, path)
			if !slices.Equal(got[d].parts, wantParts) {
				t.Errorf("%s: parts %v, want %v", path, got[d].parts, wantParts)
			}
			whole := slices.IndexFunc(s.calls, func(ds []digest.Digest) bool { return slices.Contains(ds, d) })
			if whole >= 0 {
				wholes++
			}
			if whole >= 0 && whole < got[d].calls {
				t.Errorf("%s: its parts come after all of it: call %d, with %d before", path, whole, got[d].calls)
			}
			delete(got, d)
		}
		other := s.at(t, now, "other")
		if slices.ContainsFunc(s.calls, func(ds []digest.Digest) bool { return slices.Contains(ds, other) }) {
			wholes++
		}
		if wholes == 0 { // the profile is not believed in all of them before any is read
			t.Error("no file was asked for as a whole")
		}
		if len(got) > 0 {
			t.Errorf("parts of what is not alike: %v", got)
		}
		if s.released != 0 {
			t.Errorf("%d were given up too soon", s.released)
		}
		r.Stop()
		r.Stop()
		if s.released != 3 {
			t.Errorf("%d were given up in the end, of 3", s.released)
		}
	})
}

// The files of which parts are kept are bounded, and so are their bytes before anything of them was
// of use.
func TestRaceAsksForFewParts(t *testing.T) {
	for _, c := range []struct{ files, each, want int }{
		{files: 3 * maxParted, each: 1, want: maxParted},
		{files: 10, each: 4 << 20, want: 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStorage()
			var paths []string
			parts := map[string]span.Set{}
			for i := range c.files {
				path := fmt.Sprintf("f%02d", i)
				paths = append(paths, path+":20000000")
				parts[path] = span.Set{{From: 0, To: int64(c.each)}}
			}
			root := s.put(t, paths...)
			profile := readingParts(t, s, root, parts)
			race(t, Spec{Root: root, Source: s, Profile: profile, Origin: Exact, Limits: wideLimits(LimitsOptions{})})
			if len(s.parts) != c.want || s.released != c.want {
				t.Errorf("parts of %d files were asked for, and of %d given up, want %d", len(s.parts), s.released, c.want)
			}
		})
	}
}
