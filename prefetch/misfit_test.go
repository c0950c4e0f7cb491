package prefetch

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/fsac"
)

// A patient action waits a round trip for each directory and file that is not there, one after
// the other, and computes a little after each file.
type patient struct {
	s      *storage
	in     *stage
	race   *Race
	waited time.Duration
}

func (a *patient) need(d digest.Digest) {
	if a.s.has(d) {
		return
	}
	time.Sleep(roundTrip)
	a.s.mu.Lock()
	a.s.local[d] = true
	a.s.mu.Unlock()
	a.waited += roundTrip
}

func (a *patient) open(t *testing.T, path string) {
	a.need(a.in.root)
	needs := a.in.needs(t, path)
	for _, d := range needs[:len(needs)-1] {
		a.need(d)
	}
	a.race.Opened(path, tree.File)
	a.need(needs[len(needs)-1])
	time.Sleep(roundTrip / 100)
}

// waits returns how long an action waits that reads these paths, and how many bytes come that it
// does not read.
func waits(t *testing.T, in *stage, read []string, p *Profile, o Origin) (waited time.Duration, unread int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := in.near()
		a := &patient{s: s, in: in, race: Start(t.Context(), Spec{Root: in.root, Source: s, Profile: p, Origin: o})}
		want := map[digest.Digest]bool{}
		for _, path := range read {
			a.open(t, path)
			want[in.at(t, path)] = true
		}
		a.race.Stop()
		for d := range s.local {
			if s.dirs[d] == nil && !want[d] {
				unread += d.SizeBytes()
			}
		}
		waited = a.waited
	})
	return waited, unread
}

// shapes are trees, and what an action reads of them.
func shapes() map[string]struct{ all, read []string } {
	pick := func(all []string, which func(i int) bool) (read []string) {
		for i, path := range all {
			if which(i) {
				path, _, _ = strings.Cut(path, ":")
				read = append(read, path)
			}
		}
		return read
	}
	var deep, wide []string
	for i := range 40 {
		for j := range 12 {
			deep = append(deep, fmt.Sprintf("lib/p%d/src/m%02d/f%02d%02d", i%3, i, i, j))
			wide = append(wide, fmt.Sprintf("d%02d/f%02d%02d:20000", i, i, j))
		}
	}
	few := flatTree(1, 60)
	return map[string]struct{ all, read []string }{
		"all of a directory": {few, few},
		"deep":               {deep, pick(deep, func(i int) bool { return i%12 < 9 })},
		"wide":               {wide, pick(wide, func(i int) bool { return i/12%2 == 0 })},
		"here and there":     {wide, pick(wide, func(i int) bool { return i%17 == 0 })},
	}
}

// However wrong a profile is, with it an action waits at most 1.2 times as long as with none.
func TestMisfits(t *testing.T) {
	every, ok := ParseProfile(&fsac.FileSystemAccessProfile{BloomFilter: []byte{0xff}, BloomFilterHashFunctions: 1})
	if !ok {
		t.Fatal("no profile of every path")
	}
	for name, shape := range shapes() {
		var renamed, others []string
		read := map[string]bool{}
		for _, path := range shape.read {
			renamed, read[path] = append(renamed, path+".old"), true
		}
		for _, path := range shape.all {
			if path, _, _ = strings.Cut(path, ":"); !read[path] {
				others = append(others, path)
			}
		}
		elsewhere := make([]string, 100)
		for i := range elsewhere {
			elsewhere[i] = fmt.Sprintf("usr/share/d%d/f", i)
		}
		in := stageOf(t, shape.all)
		none, _ := waits(t, in, shape.read, nil, None)
		exact, unread := waits(t, in, shape.read, profileOf(shape.read...), Exact)
		if exact > 6*roundTrip || unread > 200_000 {
			t.Errorf("%s: waits %s with its own profile, and %d bytes come that are not read", name, exact, unread)
		}
		misfits := map[string]*Profile{
			"poisoned": every, "empty": NewProfile(nil, ProfileOptions{}), "without the root": NewProfile([]PathHash{HashPath("x")}, ProfileOptions{}),
			"renamed": profileOf(renamed...), "elsewhere": profileOf(elsewhere...), "stale": profileOf(append(others, "x")...),
		}
		for kind, p := range misfits {
			for _, o := range []Origin{Exact, Coarse} {
				got, _ := waits(t, in, shape.read, p, o)
				t.Logf("%s, %s %s: waits %s, %s without", name, o, kind, got, none)
				if got > none*12/10 {
					t.Errorf("%s: waits %s with a profile that is %s (%s), %s with none", name, got, kind, o, none)
				}
			}
		}
	}
}

// A random tree, what an action reads of it, and a profile that has little to do with it.
func randomMisfit(r *rand.Rand) (all, read []string, p *Profile, o Origin) {
	var folders []string
	folder := ""
	for i := range 5 + r.IntN(60) {
		folder = randomFolder(r, i, folder, folders)
		folders = append(folders, folder)
	}
	var said []string
	share, right, wrong := r.Float64(), r.Float64()*0.3, r.Float64()
	for i, folder := range folders {
		mostly := r.Float64() < share
		for j := range r.IntN(40) {
			path := fmt.Sprintf("%sf%d-%d", folder, i, j)
			all = append(all, fmt.Sprintf("%s:%d", path, 100+r.IntN(40_000)))
			if mostly && r.IntN(4) > 0 || !mostly && r.IntN(20) == 0 {
				read = append(read, path)
				if r.Float64() < right {
					said = append(said, path)
				}
			} else if r.Float64() < wrong {
				said = append(said, path)
			}
		}
	}
	return all, read, profileOf(append(said, "x")...), Exact + Origin(r.IntN(2))
}

// waitsWithMisfit returns how long an action waits with a misfit of this seed, and with no profile.
func waitsWithMisfit(t *testing.T, seed uint64) (got, none time.Duration) {
	t.Helper()
	all, read, p, o := randomMisfit(rand.New(rand.NewPCG(seed, 0)))
	in := stageOf(t, all)
	none, _ = waits(t, in, read, nil, None)
	got, _ = waits(t, in, read, p, o)
	if got > none*12/10+2*roundTrip {
		t.Errorf("seed %d: waits %s with a misfit (%s), %s with none", seed, got, o, none)
	}
	return got, none
}

// FuzzMisfits is TestRandomMisfits with more seeds.
func FuzzMisfits(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64) { waitsWithMisfit(t, seed) })
}

func TestRandomMisfits(t *testing.T) {
	var sum, without time.Duration
	for seed := range scenes(80) {
		got, none := waitsWithMisfit(t, seed)
		sum, without = sum+got, without+none
	}
	t.Logf("waits %s with misfits, %s with none", sum, without)
	if sum > without {
		t.Errorf("waits %s with misfits, %s with none", sum, without)
	}
}
