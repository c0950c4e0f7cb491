package prefetch

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// A scene is an input root, what an action reads of it, and a record that may be wrong in any way.
type scene struct {
	in     *stage
	all    []string // with sizes
	run    recorded
	said   []PathHash // what the record has
	record *Profile
	origin Origin
	about  string
}

// sizeOf returns the size of a file: most are small, few are large.
func sizeOf(r *rand.Rand) int64 {
	switch n := r.IntN(1000); {
	case n < 900:
		return 100 + r.Int64N(40<<10)
	case n < 990:
		return 100 + r.Int64N(600<<10)
	}
	return 100 + r.Int64N(8<<20)
}

// randomFolder returns the i-th folder of a random tree: one at its top, one in the last folder, or
// one in any of those before.
func randomFolder(r *rand.Rand, i int, last string, before []string) string {
	switch name := fmt.Sprintf("d%d/", i); r.IntN(3) {
	case 0:
		return name
	case 1:
		return last + name
	default:
		if len(before) == 0 {
			return last
		}
		return before[r.IntN(len(before))] + name
	}
}

// randomTree returns files in folders, some of them deep.
func randomTree(r *rand.Rand) (folders [][]opened) {
	var names []string
	folder := ""
	for i := range 5 + r.IntN(60) {
		folder = randomFolder(r, i, folder, names)
		names = append(names, folder)
		var files []opened
		for j := range 1 + r.IntN(60) {
			files = append(files, opened{bytes: sizeOf(r), path: fmt.Sprintf("%sf%d-%d", folder, i, j)})
		}
		folders = append(folders, files)
	}
	return folders
}

// randomScene draws all of a scene.
func randomScene(t *testing.T, r *rand.Rand) scene {
	var s scene
	var said []string
	share, right, wrong, slow := r.Float64(), r.Float64(), r.Float64()*r.Float64(), r.IntN(4000)
	switch r.IntN(6) {
	case 0, 1:
		right = 0
	case 2:
		right, wrong = 1, 0 // only the order may be wrong
	}
	for _, files := range randomTree(r) {
		mostly := r.Float64() < share
		for _, f := range files {
			s.all = append(s.all, fmt.Sprintf("%s:%d", f.path, f.bytes))
			if mostly && r.IntN(4) > 0 || !mostly && r.IntN(20) == 0 {
				f.after = time.Duration(r.IntN(slow+1)) * time.Microsecond
				s.run = append(s.run, f)
				if r.Float64() < right {
					said = append(said, f.path)
				}
			} else if r.Float64() < wrong {
				said = append(said, f.path)
			}
		}
	}
	order := r.IntN(3)
	switch order {
	case 1:
		slices.Reverse(said)
	case 2:
		r.Shuffle(len(said), func(i, j int) { said[i], said[j] = said[j], said[i] })
	}
	s.about = fmt.Sprintf("order %d, right %.2f, wrong %.2f", order, right, wrong)
	if r.IntN(2) == 0 {
		r.Shuffle(len(s.run), func(i, j int) { s.run[i], s.run[j] = s.run[j], s.run[i] })
		s.about += ", shuffled"
	}
	s.said = orderOf(append(said, "x")...)
	s.record, s.origin = profileAfter(exactRules(ProfileOptions{}.withDefaults()), s.said), Exact+Origin(r.IntN(2))
	s.in = stageOf(t, s.all)
	if s.origin == Exact && r.IntN(2) == 0 {
		s.record = s.in.withDirectories(s.record, orderOf(said...))
	}
	return s
}

// waitsWithRecord returns how long an action of this seed waits at three links, with the record of its
// scene and with none. It may wait 1.2 times as long with the record, and a round trip.
func waitsWithRecord(t *testing.T, seed uint64) (sum, without time.Duration) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 7))
	s := randomScene(t, r)
	for _, mbitPerSecond := range []float64{30, 100, 1000} {
		trip := []time.Duration{2, 10, 50}[r.IntN(3)] * time.Millisecond
		away := mbit(mbitPerSecond, trip)
		with := func() time.Duration { return s.run.replay(t, s.in, away, s.record, s.origin) }
		withNone := func() time.Duration { return s.run.replay(t, s.in, away, nil, None) }
		none, got := withNone(), with()
		if (comparison{trip, with, withNone}).isAbove(got, none) {
			t.Errorf("seed %d, %g Mbit/s, %s: waits %s with a record (%s, %s), %s with none",
				seed, mbitPerSecond, trip, got, s.origin, s.about, none)
		}
		sum, without = sum+got, without+none
	}
	return sum, without
}

// FuzzAnyRecord is TestAnyRecord with more seeds.
func FuzzAnyRecord(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64) { waitsWithRecord(t, seed) })
}

// Whatever a record says, in whatever order, an action waits at most 1.2 times as long as with
// none, and a round trip, over slow links and fast ones; not with a few seeds of a thousand.
func TestAnyRecord(t *testing.T) {
	var sum, without time.Duration
	for seed := range scenes(10) {
		got, none := waitsWithRecord(t, seed)
		sum, without = sum+got, without+none
	}
	t.Logf("waits %s with records, %s with none", sum, without)
	if sum > without {
		t.Errorf("waits %s with records, %s with none", sum, without)
	}
	if underRace {
		return
	}
	// These wait longer if large files do not yield.
	for _, seed := range []uint64{407, 901, 1016, 1081, 1188} {
		waitsWithRecord(t, seed)
	}
}

// An exact profile that is right is not held up by neighbours of its files: on a slow link, the
// action waits not much longer than for its bytes.
func TestRightProfileOnASlowLink(t *testing.T) {
	var all recorded
	s := telling{}
	for i := range 600 {
		o := opened{bytes: 60_000, after: time.Millisecond, path: fmt.Sprintf("d%02d/f%03d", i%20, i)}
		if all = append(all, o); i/20%2 == 0 { // every other file of each folder
			s.run = append(s.run, o)
		}
	}
	s.in = all.stage(t)
	away := mbit(30, 50*time.Millisecond)
	p := profileAfter(exactRules(ProfileOptions{}.withDefaults()), s.run.order())
	got := s.waits(t, away, p, Exact, LimitsOptions{})
	if link := time.Duration(float64(60_000*len(s.run)) / away.bytesPerSecond * float64(time.Second)); got > link*3/2 {
		t.Errorf("waits %s for bytes that the link carries in %s", got, link)
	}
}
