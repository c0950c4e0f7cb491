package prefetch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records/record"
)

func TestCoarseKey(t *testing.T) {
	base := compileOf("a")
	key, ok := base.coarseKey()
	if !ok {
		t.Fatal("no key")
	}
	if other, _ := compileOf("b").coarseKey(); other != key {
		t.Error("actions that are alike have different keys")
	}
	seen := map[record.Key]string{key: "base"}
	for name, change := range map[string]func(*Action){
		"instance":      func(a *Action) { a.Instance = "x" },
		"function":      func(a *Action) { a.Digest = digest.Of(digest.BLAKE3, nil) },
		"mnemonic":      func(a *Action) { a.Mnemonic = "x" },
		"tool":          func(a *Action) { a.Tool = "x" },
		"platform":      func(a *Action) { a.Platform = "x" },
		"configuration": func(a *Action) { a.Configuration = "x" },
		"moved":         func(a *Action) { a.Mnemonic, a.Tool = a.Tool, a.Mnemonic },
	} {
		a := base
		change(&a)
		k, ok := a.coarseKey()
		if before, double := seen[k]; double || !ok {
			t.Errorf("%s: the key is that of %s (%t)", name, before, ok)
		}
		seen[k] = name
	}
	if _, ok := actionOf("a").coarseKey(); ok {
		t.Error("an action of which nothing is known is like others")
	}
}

// TestCoarseCompiles has compile actions that share a compiler and the headers of the
// system, with sources and some headers of their own.
func TestCoarseCompiles(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	tools := append(numbered("external/gcc/lib/%d", 50), numbered("usr/include/%d", 300)...)
	library := numbered("external/boost/%d", 1000) // each takes a half of them
	reads := func(i int) []string {
		paths := append(slices.Clone(tools), fmt.Sprintf("src/%d.cc", i), fmt.Sprintf("src/%d.h", i))
		for _, path := range library {
			if random.IntN(2) == 0 {
				paths = append(paths, path)
			}
		}
		return paths
	}
	s := &fakeStore{}
	for i := range 60 {
		p := NewProfiles(s, ProfilesOptions{})
		if i > 0 {
			found, origin := p.Find(t.Context(), compileOf(fmt.Sprint(i)))
			if origin != Coarse {
				t.Fatalf("action %d has the profile %s", i, origin)
			}
			for _, h := range hashesOf(tools...) {
				if !found.Contains(h) {
					t.Fatalf("action %d: a path that all read is not foreseen", i)
				}
			}
			foreseen := 0
			for j := range i {
				if i > 1 && found.Contains(HashPath(fmt.Sprintf("src/%d.cc", j))) {
					foreseen++
				}
			}
			if foreseen > 1 { // one may be a false positive
				t.Errorf("action %d: %d sources of others are foreseen", i, foreseen)
			}
			if n := len(library) - len(found.missing(hashesOf(library...))); i > 8 && n < len(library)*8/10 {
				t.Errorf("action %d: %d of %d paths that a half reads are foreseen", i, n, len(library))
			}
		}
		learn(p, compileOf(fmt.Sprint(i)), reads(i)...)
		p.Flush(t.Context())
		for k, v := range s.values {
			if len(v) > 32<<10 {
				t.Fatalf("%v has %d bytes", k, len(v))
			}
		}
	}
	other := compileOf("x")
	other.Mnemonic = "CppLink"
	if _, origin := NewProfiles(s, ProfilesOptions{}).Find(t.Context(), other); origin != None {
		t.Errorf("an action of another kind has the profile %s", origin)
	}
}

// TestCoarseForgets lets all actions read something else from some time on.
func TestCoarseForgets(t *testing.T) {
	p := NewProfiles(&fakeStore{}, ProfilesOptions{})
	all := []string{"old", "new"}
	for i := range 40 {
		learn(p, compileOf(fmt.Sprint(i)), "old")
	}
	expect(t, p, compileOf("x"), Coarse, all, "old")
	for i := range coarseRuns {
		learn(p, compileOf(fmt.Sprint(100+i)), "new")
		want := []string{"old"}
		switch {
		case coarseRuns-1-i < coarseLeast(coarseRuns, coarseShare): // so many readers are left
			want = []string{"new"}
		case i+1 >= coarseLeast(coarseRuns, coarseShare):
			want = all
		}
		expect(t, p, compileOf("x"), Coarse, all, want...)
	}
}

// TestCoarseCountsActions runs one action many times: that makes it no more than one.
func TestCoarseCountsActions(t *testing.T) {
	s := &fakeStore{}
	p := NewProfiles(s, ProfilesOptions{})
	for i := range 10 {
		learn(p, compileOf(fmt.Sprint(i)), "common", fmt.Sprintf("own/%d", i))
	}
	learn(p, compileOf("busy"), "common", "busy")
	p.Flush(t.Context())
	s.written()
	for range 100 {
		learn(p, compileOf("busy"), "common", "busy")
	}
	if p.Flush(t.Context()); s.written() != 0 {
		t.Error("a run that is known was written")
	}
	all := []string{"common", "busy", "own/3"}
	expect(t, p, compileOf("x"), Coarse, all, "common")
}

// TestCoarseWritesSeldom counts the writes of the record that many actions share.
func TestCoarseWritesSeldom(t *testing.T) {
	s := &fakeStore{}
	p := NewProfiles(s, ProfilesOptions{})
	const actions = 200
	for i := range actions {
		learn(p, compileOf(fmt.Sprint(i)), "common", fmt.Sprintf("own/%d", i))
	}
	if n := s.written() - actions; n < 10 || n > 25 {
		t.Errorf("%d writes of the coarse profile for %d actions", n, actions)
	}
	p.Flush(t.Context())
	if n := s.written(); n > 1 {
		t.Errorf("%d writes at the end", n)
	}
	if p.Flush(t.Context()); s.written() != 0 {
		t.Error("what was written is written again")
	}
}

// TestCoarseKeepsWhatIsUnwritten has another program write the record meanwhile.
func TestCoarseKeepsWhatIsUnwritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{}
		here, there := NewProfiles(s, ProfilesOptions{}), NewProfiles(s, ProfilesOptions{})
		for i := range 4 { // the fourth is not written at once
			learn(here, compileOf(fmt.Sprint(i)), "here")
		}
		time.Sleep(time.Minute)
		for i := range 3 {
			learn(there, compileOf(fmt.Sprint("there", i)), "there")
		}
		time.Sleep(time.Minute)
		all := []string{"here", "there"}
		expect(t, here, compileOf("x"), Coarse, all, "here")
		here.Flush(t.Context())
		expect(t, NewProfiles(s, ProfilesOptions{}), compileOf("x"), Coarse, all, "here")
	})
}

// TestCoarseHasNoPlace has a store that only keeps profiles of actions.
func TestCoarseHasNoPlace(t *testing.T) {
	s := &fakeStore{refuses: names.CoarseBucket}
	p := NewProfiles(s, ProfilesOptions{})
	for i := range 3 {
		learn(p, compileOf(fmt.Sprint(i)), "common", fmt.Sprintf("own/%d", i))
	}
	all := []string{"common", "own/0", "own/1"}
	expect(t, p, compileOf("x"), Coarse, all, "common") // from memory
	expect(t, NewProfiles(s, ProfilesOptions{}), compileOf("0"), Exact, all, "common", "own/0")
}

func TestCoarseLeast(t *testing.T) {
	for actions, want := range map[int]int{1: 1, 2: 2, 6: 2, 7: 3, 10: 3, 11: 4, 32: 10} {
		if got := coarseLeast(actions, coarseShare); got != want {
			t.Errorf("of %d actions %d have to read a path, want %d", actions, got, want)
		}
	}
}

// What some alike actions read is fetched if it is small, also after the store was asked anew.
func TestCoarseForeseesWhatIsSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{}
		p := NewProfiles(store, ProfilesOptions{})
		for i := range 20 {
			paths := []PathHash{RootHash, HashPath("d"), HashPath("d/all")}
			if i < 3 {
				paths = append(paths, HashPath("d/some"), HashPath("d/large"))
			}
			if i == 0 {
				paths = append(paths, HashPath("d/one"))
			}
			p.Learn(t.Context(), compileOf(fmt.Sprint(i)), paths, Inputs{})
		}
		p.Flush(t.Context())
		for _, p := range []*Profiles{p, NewProfiles(store, ProfilesOptions{})} {
			found, origin := p.Find(t.Context(), compileOf("new"))
			if origin != Coarse {
				t.Fatalf("profile is %s", origin)
			}
			s := newStorage()
			root := s.put(t, "d/all", "d/some", "d/one", fmt.Sprintf("d/large:%d", cheapBytes+1))
			race(t, Spec{Root: root, Source: s, Profile: found})
			for path, want := range map[string]bool{"d/all": true, "d/some": true, "d/one": false, "d/large": false} {
				if got := s.has(s.at(t, root, path)); got != want {
					t.Errorf("%s came: %t", path, got)
				}
			}
		}
	})
}
