package prefetch

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/profiles"
)

// firstOf are those files of a tree, all of which is local.
func firstOf(t *testing.T, s *storage, root digest.Digest, paths ...string) (files []First) {
	t.Helper()
	for _, path := range paths {
		files = append(files, First{HashPath(path), s.at(t, root, path)})
	}
	return files
}

func TestFirstFiles(t *testing.T) {
	s := newStorage()
	root := s.put(t, "a/b/one", "a/two", "c/large:1048577", "c/three:1048576", "d/gone/four", "five", "unread")
	read := func(paths ...string) *Recorder {
		var r Recorder
		for _, path := range paths {
			r.Read(path, tree.File)
		}
		return &r
	}
	gone := s.at(t, root, "d/gone")
	local := func(d digest.Digest) (*tree.Directory, bool) {
		dir, ok := s.dirs[d]
		return dir, ok && d != gone
	}
	got := read("five", "c/large", "c/three", "d/gone/four", "not/there", "a/b/one", "a/two").FirstFiles(local, root)
	if want := firstOf(t, s, root, "five", "c/three", "a/b/one", "a/two"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := read("four").FirstFiles(local, gone); got != nil {
		t.Errorf("of a root that is not here: %v", got)
	}
	many := numbered("%d/%[1]d", 2*maxFirst)
	root = s.put(t, many...)
	slices.Reverse(many)
	if got := read(many...).FirstFiles(s.everywhere, root); !slices.Equal(got, firstOf(t, s, root, many[:maxFirst]...)) {
		t.Errorf("%d of many files", len(got))
	}
	root = s.put(t, numbered("%d:1000000", 10)...)
	if got := read(numbered("%d", 10)...).FirstFiles(s.everywhere, root); len(got) != maxFirstBytes/1000000 {
		t.Errorf("%d of files with many bytes", len(got))
	}
}

// The files that the last run read first come in the first round trip, whatever the depth, if they
// are the same; all others as soon as without them.
func TestRaceAsksForFirstFilesAtOnce(t *testing.T) {
	const depth = 10
	for what, version := range map[string]string{"same": "", "all changed": ":11", "one changed": ":12"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStorage()
				paths, read := deepTree(depth)
				profile := remembering(t, s, s.put(t, paths...), read...)
				for d := range s.remote {
					if s.dirs[d] == nil && version == ":11" {
						delete(s.remote, d) // outdated ones have gone
					}
				}
				for i, path := range paths {
					if version == ":11" || version == ":12" && path == read[0] {
						paths[i] = path + version
					}
				}
				root := s.put(t, paths...)
				r := Start(t.Context(), Spec{Root: root, Source: s, Profile: profile})
				time.Sleep(roundTrip + 1)
				came := 0
				for _, path := range read { // fewer than maxFirst
					if s.has(s.at(t, root, path)) {
						came++
					}
				}
				if want := map[string]int{"": len(read), ":12": len(read) - 1}[version]; came != want {
					t.Errorf("%d files came in the first round trip, want %d", came, want)
				}
				began := time.Now()
				time.Sleep(time.Hour)
				synctest.Wait()
				r.Stop()
				for _, path := range read {
					if !s.has(s.at(t, root, path)) {
						t.Errorf("%s did not come", path)
					}
				}
				// Level by level, as the directories changed, and their files.
				if n := s.last.Sub(began) / roundTrip; version == "" && n > 2 || n > 2*depth {
					t.Errorf("%d more round trips", n)
				}
			})
		})
	}
}

// A file that was first, and is no longer at its path, says nothing about the others: it takes no
// credit from them.
func TestQueueForgets(t *testing.T) {
	for _, requested := range []bool{false, true} {
		q := newQueue(Exact, nil, &pace{window: 1 << 20})
		old := filesOf(1<<20, 1<<20, 1<<20)
		q.foresee(old)
		if requested {
			if got := taken(q); len(got) == 0 {
				t.Fatal("asks for nothing")
			}
			q.ended(old[:1], false)
		}
		q.forget([]PathHash{0, 1})
		changed := file{digest: fileDigest("new", 100), hash: 2}
		q.foresee([]file{changed})
		if q.credit.doubt != 0 || len(q.credit.known) != 1 {
			t.Errorf("requested %t: %d bytes are in doubt, of %d files", requested, q.credit.doubt, len(q.credit.known))
		}
		if batch, _ := q.take(); len(batch) != 1 || batch[0].digest != changed.digest {
			t.Errorf("requested %t: asks for %v", requested, batch)
		}
		if batch, _ := q.take(); batch != nil {
			t.Errorf("requested %t: asks for %v", requested, batch)
		}
	}
}

// A race with a record of files that are gone gives the files of the tree as much credit as one
// without it.
func TestRaceForgetsFirstFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStorage()
		old, now := numbered("old%d:65536", 64), numbered("now%d:65536", 16)
		profile := remembering(t, s, s.put(t, append(slices.Clone(old), now...)...), append(numbered("old%d", 64), numbered("now%d", 16)...)...)
		if len(profile.first) != 64 {
			t.Fatalf("%d files are remembered", len(profile.first))
		}
		for d := range s.remote {
			delete(s.remote, d)
		}
		root := s.put(t, now...)
		race(t, Spec{Root: root, Source: s, Profile: profile})
		for i := range 16 {
			if !s.has(s.at(t, root, fmt.Sprintf("now%d", i))) {
				t.Errorf("now%d did not come", i)
			}
		}
	})
}

// The first files are written when a quarter of them are others than before, and not where the store
// drops them.
func TestProfilesRememberFirst(t *testing.T) {
	var files []First
	for i := range 100 {
		files = append(files, First{PathHash(i), digest.Of(digest.SHA256, fmt.Append(nil, i))})
	}
	for _, plain := range []bool{false, true} {
		s := &fakeStore{plain: plain}
		for i, step := range []struct {
			run, known []First
			written    int
		}{
			{files[:80], files[:80], 1},
			{files[:80], files[:80], 0},
			{files[15:95], files[:80], 0}, // they are nearly as good
			{files[20:100], files[:80], 0},
			{files[21:100], files[21:100], 1},
			{nil, files[21:100], 0},
		} {
			if plain {
				step.known, step.written = nil, step.written*max(1-i, 0)
			}
			p := NewProfiles(s, ProfilesOptions{})
			p.Learn(t.Context(), actionOf("a"), hashesOf("a/b"), Inputs{First: step.run})
			if n := s.written(); n != step.written {
				t.Errorf("plain %t, step %d: %d writes, want %d", plain, i, n, step.written)
			}
			found, _ := NewProfiles(s, ProfilesOptions{}).Find(t.Context(), actionOf("a"))
			if !slices.Equal(found.first, step.known) {
				t.Errorf("plain %t, step %d: %d files are remembered, want %d", plain, i, len(found.first), len(step.known))
			}
			if found, _ := p.Find(t.Context(), actionOf("a")); step.run != nil && !slices.Equal(found.first, step.run) {
				t.Errorf("plain %t, step %d: not even in memory", plain, i)
			}
		}
	}
	// Actions that are merely alike have other inputs.
	p := NewProfiles(&fakeStore{}, ProfilesOptions{})
	p.Learn(t.Context(), compileOf("a"), hashesOf("a/b"), Inputs{First: files})
	if found, origin := p.Find(t.Context(), compileOf("b")); origin != Coarse || found.first != nil {
		t.Errorf("%d files of a %s profile", len(found.first), origin)
	}
}

func TestMalformedFirst(t *testing.T) {
	d := digest.Of(digest.SHA256, []byte("a"))
	sized := func(sizes ...int64) *profiles.Files {
		m := &profiles.Files{Sizes: sizes, Paths: make([]uint64, len(sizes))}
		for range sizes {
			m.Hashes = d.AppendHash(m.Hashes)
		}
		return m
	}
	noPath := sized(1)
	noPath.Paths = nil
	many := make([]int64, maxFirst+1)
	for what, m := range map[string]*profiles.Files{
		"none": nil, "empty": {}, "no hash": {Sizes: []int64{1}, Paths: []uint64{1}}, "no path": noPath,
		"no size":     {Hashes: make([]byte, digest.HashSize), Paths: []uint64{1}},
		"half a hash": {Hashes: make([]byte, digest.HashSize/2), Sizes: []int64{1}, Paths: []uint64{1}},
		"negative":    sized(-1), "too large": sized(largeBytes + 1),
		"too large together": sized(largeBytes, largeBytes, largeBytes, largeBytes, 1), "too many": sized(many...),
	} {
		if got := parseFirst(m, digest.SHA256); got != nil {
			t.Errorf("%s: %v", what, got)
		}
		expectDespite(t, &profiles.Record{First: m})
	}
	want := []First{{1, d}, {2, digest.Of(digest.SHA256, []byte("b"))}}
	if got := parseFirst(firstMessage(want), digest.SHA256); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
