package prefetch

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// remembering is the profile of a run that read just these paths below root, all of
// which is local for it, by way of a store.
func remembering(t *testing.T, s *storage, root digest.Digest, paths ...string) *Profile {
	t.Helper()
	records := &fakeStore{}
	var r Recorder
	for _, path := range paths {
		r.Read(path, tree.File)
	}
	in := Inputs{Directories: Directories(s.everywhere, root, r.Has), First: r.FirstFiles(s.everywhere, root)}
	NewProfiles(records, ProfilesOptions{}).Learn(t.Context(), actionOf("a"), r.Hashes(), in)
	p, _ := NewProfiles(records, ProfilesOptions{}).Find(t.Context(), actionOf("a"))
	if p == nil {
		t.Fatal("nothing is remembered")
	}
	return p
}

// everywhere is LocalDirectory of one that has everything.
func (s *storage) everywhere(d digest.Digest) (*tree.Directory, bool) {
	dir, ok := s.dirs[d]
	return dir, ok
}

func TestDirectories(t *testing.T) {
	s := newStorage()
	root := s.put(t, "a/b/read", "a/c/other", "d/file", "e/f/gone/file2", "same/b/read")
	var r Recorder
	for _, path := range []string{"a/b/read", "d/file", "e/f/gone/file2", "same/b/read"} {
		r.Read(path, tree.File)
	}
	gone := s.at(t, root, "e/f/gone")
	local := func(d digest.Digest) (*tree.Directory, bool) {
		dir, ok := s.dirs[d]
		return dir, ok && d != gone
	}
	got := Directories(local, root, r.Has)
	want := []digest.Digest{root} // level by level; a/b and same/b are one
	for _, path := range []string{"a", "d", "e", "same", "a/b", "e/f"} {
		want = append(want, s.at(t, root, path))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Directories(local, gone, r.Has); got != nil {
		t.Errorf("of a root that is not here: %v", got)
	}
	root = s.put(t, numbered("%d/%[1]d", 2*maxRemembered)...)
	if n := len(Directories(s.everywhere, root, func(PathHash) bool { return true })); n != maxRemembered {
		t.Errorf("%d of many directories", n)
	}
}

// However deep a tree is, its directories come at once where the last run went through
// the same ones, and what changed since comes level by level.
func TestRaceAsksForRememberedDirectories(t *testing.T) {
	const depth = 10
	for _, changed := range []string{"", "e00/new", "d/d/d/d/new"} {
		t.Run(changed, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStorage()
				paths, read := deepTree(depth)
				profile := remembering(t, s, s.put(t, paths...), read...)
				// Directories and files, and once more those files for which all calls were
				// under way when their directories came.
				trips := time.Duration(3)
				if changed != "" {
					paths = append(paths, changed)
					trips += time.Duration(len(changed) / 2) // at most, the root and those below
				}
				for d := range s.remote {
					if s.dirs[d] != nil {
						delete(s.remote, d) // outdated ones have gone
					}
				}
				root := s.put(t, paths...)
				began := time.Now()
				_, stats := race(t, Spec{Root: root, Source: s, Profile: profile})
				for _, path := range read {
					if !s.has(s.at(t, root, path)) {
						t.Errorf("%s did not come", path)
					}
				}
				if n := s.last.Sub(began) / roundTrip; n > trips {
					t.Errorf("%d serial round trips, want at most %d", n, trips)
				}
				if n := stats.Directories.Files; n < 11*depth || n > 11*depth+2 {
					t.Errorf("%d directories came", n)
				}
			})
		})
	}
}

// What the last run went through is written when much of it is another than before,
// and not where the store drops it.
func TestProfilesRememberDirectories(t *testing.T) {
	ds := make([]digest.Digest, 100)
	for i := range ds {
		ds[i] = digest.Of(digest.SHA256, fmt.Append(nil, i))
	}
	find := func(s *fakeStore) []digest.Digest {
		found, _ := NewProfiles(s, ProfilesOptions{}).Find(t.Context(), actionOf("a"))
		return found.directories
	}
	for _, plain := range []bool{false, true} {
		s := &fakeStore{plain: plain}
		for i, step := range []struct {
			run, known []digest.Digest
			written    int
		}{
			{ds[:80], ds[:80], 1},
			{ds[:80], ds[:80], 0},
			{ds[5:85], ds[:80], 0}, // they are as good
			{ds[20:100], ds[20:100], 1},
			{ds[20:40], ds[20:40], 1},
			{nil, ds[20:40], 0},
		} {
			if plain {
				step.known, step.written = nil, step.written*max(1-i, 0)
			}
			p := NewProfiles(s, ProfilesOptions{})
			p.Learn(t.Context(), actionOf("a"), hashesOf("a/b"), Inputs{Directories: step.run})
			if n := s.written(); n != step.written {
				t.Errorf("plain %t, step %d: %d writes, want %d", plain, i, n, step.written)
			}
			if got := find(s); !slices.Equal(got, step.known) {
				t.Errorf("plain %t, step %d: %d directories are remembered, want %d", plain, i, len(got), len(step.known))
			}
			if found, _ := p.Find(t.Context(), actionOf("a")); found.directories == nil && len(step.run) > 0 {
				t.Errorf("plain %t, step %d: not even in memory", plain, i)
			}
		}
	}
	// Actions that are merely alike have other inputs.
	p := NewProfiles(&fakeStore{}, ProfilesOptions{})
	p.Learn(t.Context(), compileOf("a"), hashesOf("a/b"), Inputs{Directories: ds})
	if found, origin := p.Find(t.Context(), compileOf("b")); origin != Coarse || found.directories != nil {
		t.Errorf("%d directories of a %s profile", len(found.directories), origin)
	}
}

func TestMalformedDirectories(t *testing.T) {
	d := digest.Of(digest.SHA256, []byte("a"))
	sized := func(sizes ...int64) *profiles.Directories {
		m := &profiles.Directories{Sizes: sizes}
		for range sizes {
			m.Hashes = d.AppendHash(m.Hashes)
		}
		return m
	}
	for what, m := range map[string]*profiles.Directories{
		"none": nil, "empty": {}, "no hash": {Sizes: []int64{1}}, "no size": {Hashes: make([]byte, digest.HashSize)},
		"half a hash": {Hashes: make([]byte, digest.HashSize/2), Sizes: []int64{1}},
		"negative":    sized(-1), "too large": sized(maxRememberedBytes + 1),
		"too large together": sized(maxRememberedBytes, 1), "too many": sized(make([]int64, maxRemembered+1)...),
	} {
		if got := parseDirectories(m, digest.SHA256); got != nil {
			t.Errorf("%s: %v", what, got)
		}
		expectDespite(t, &profiles.Record{Directories: m})
	}
	want := []digest.Digest{d, digest.Of(digest.SHA256, []byte("b"))}
	if got := parseDirectories(directoriesMessage(want), digest.SHA256); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// expectDespite expects that the filter of a record is used, whatever else is wrong with the record.
func expectDespite(t *testing.T, record *profiles.Record) {
	t.Helper()
	filter := NewProfile(hashesOf("a"), ProfileOptions{}).Message()
	record.BloomFilter, record.BloomFilterHashFunctions = filter.GetBloomFilter(), filter.GetBloomFilterHashFunctions()
	value, err := proto.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	s := &fakeStore{}
	k, _ := actionOf("a").exactKey()
	if err := s.Put(t.Context(), k, value); err != nil {
		t.Fatal(err)
	}
	expect(t, NewProfiles(s, ProfilesOptions{}), actionOf("a"), Exact, []string{"a"}, "a")
}
