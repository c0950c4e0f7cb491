package prefetch

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// A telling is an input root whose files mention others, rightly or not, and what an action reads.
type telling struct {
	in   *stage
	says map[digest.Digest]string
	all  []opened // files of the root
	run  recorded
}

// tell returns the telling of files that each mention others, by their index.
func tell(t *testing.T, files []opened, mentions [][]int) telling {
	s := telling{says: map[digest.Digest]string{}, in: recorded(files).stage(t), all: files}
	for i, f := range files {
		var text strings.Builder
		for _, other := range mentions[i] {
			fmt.Fprintf(&text, "#include <%s>\n", files[other].path)
		}
		s.says[s.in.at(t, f.path)] = text.String()
	}
	return s
}

// randomTelling draws a telling: an action reads all files that mentions of read files lead to, but
// for a share that it never reads.
func randomTelling(t *testing.T, r *rand.Rand, right float64) telling {
	var files []opened
	for _, folder := range randomTree(r) {
		files = append(files, folder...)
	}
	width, slow := 1+r.IntN(8), r.IntN(4000)
	never, mentions := make([]bool, len(files)), make([][]int, len(files))
	for i := range files {
		never[i] = i > 0 && r.Float64() > right
		files[i].after = time.Duration(r.IntN(slow+1)) * time.Microsecond
		for range r.IntN(width + 1) {
			mentions[i] = append(mentions[i], r.IntN(len(files)))
		}
	}
	s, read := tell(t, files, mentions), map[int]bool{}
	var open func(i, depth int)
	open = func(i, depth int) {
		if read[i] || never[i] || depth > 200 {
			return
		}
		read[i] = true
		s.run = append(s.run, files[i])
		for _, other := range mentions[i] {
			open(other, depth+1)
		}
	}
	for i := range 1 + r.IntN(5) {
		open(i*r.IntN(len(files))%len(files), 0)
	}
	return s
}

// waits returns how long the action waits.
func (s telling) waits(t *testing.T, away distance, p *Profile, o Origin, options LimitsOptions) (waited time.Duration) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		far := s.in.distant(away)
		race := Start(t.Context(), Spec{
			Root: s.in.root, Source: far, Profile: p, Origin: o, Limits: NewLimits(options),
			Contents: func(d digest.Digest) ([]byte, bool) { return []byte(s.says[d]), far.has(d) },
		})
		race.KnowCommand(Command{Args: []string{"cc", "-I.", s.run[0].path}})
		waited += far.need(t, s.in.root)
		for _, open := range s.run {
			time.Sleep(open.after)
			needs := s.in.needs(t, open.path)
			last := needs[len(needs)-1]
			for _, d := range needs[:len(needs)-1] {
				waited += far.need(t, d)
			}
			race.Opened(open.path, tree.File)
			was := cas.Absent
			if far.has(last) {
				was = cas.Local
			}
			waited += far.need(t, last)
			race.Came(last, was)
		}
		race.Stop()
	})
	return waited
}

// butFirst is the profile of a run that read all but the first file.
func (s telling) butFirst() *Profile {
	return profileAfter(exactRules(ProfileOptions{}.withDefaults()), s.run[1:].order())
}

// An action waits less if what files mention comes, too, or not much longer if most of that is wrong,
// also if a profile has all but the first file.
func TestMentionsSaveWaiting(t *testing.T) {
	var sum, without time.Duration
	for seed := range scenes(12) {
		r := rand.New(rand.NewPCG(seed, 8))
		s := randomTelling(t, r, []float64{0.5, 0.8, 0.95}[seed%3])
		away := mbit([]float64{30, 100, 1000}[r.IntN(3)], []time.Duration{2, 10, 50}[r.IntN(3)]*time.Millisecond)
		for _, o := range []Origin{None, Exact, Coarse} {
			var p *Profile
			if o != None {
				p = s.butFirst()
			}
			sum += s.waits(t, away, p, o, LimitsOptions{})
			without += s.waits(t, away, p, o, LimitsOptions{NoMentions: true})
		}
	}
	t.Logf("waits %s, %s without mentions", sum, without)
	if sum > without*95/100 {
		t.Errorf("waits %s, %s without mentions", sum, without)
	}
}

// Wrong mentions use up neither the link nor the credit of a profile that has all but the first file.
func TestMentionsYieldToAProfile(t *testing.T) {
	files := []opened{{bytes: 1000, path: "main.cc"}}
	mentions := make([][]int, 261)
	for i := range 60 {
		files = append(files, opened{bytes: 100_000, path: fmt.Sprintf("wrong%d/w%d.h", i, i)})
		mentions[0] = append(mentions[0], i+1)
	}
	for i := range 200 {
		files = append(files, opened{after: time.Millisecond, bytes: 10_000, path: fmt.Sprintf("right%d/r%d.h", i, i)})
	}
	s := tell(t, files, mentions)
	s.run = append(files[:1:1], files[61:]...)
	away := mbit(100, 10*time.Millisecond)
	slack := time.Duration(512 << 10 / away.bytesPerSecond * 1e9)
	for _, o := range []Origin{Exact, Coarse} {
		with := func() time.Duration { return s.waits(t, away, s.butFirst(), o, LimitsOptions{}) }
		without := func() time.Duration { return s.waits(t, away, s.butFirst(), o, LimitsOptions{NoMentions: true}) }
		if got, none := with(), without(); (comparison{slack, with, without}).isAbove(got, none) {
			t.Errorf("%s: waits %s, %s without mentions", o, got, none)
		}
	}
}

// recordOf returns a profile that has a share of what the action reads, and of what it does not.
func (s telling) recordOf(r *rand.Rand, right, wrong float64) *Profile {
	read, said := map[string]bool{}, []string{"x"}
	for _, o := range s.run {
		if read[o.path] = true; r.Float64() < right {
			said = append(said, o.path)
		}
	}
	for _, o := range s.all {
		if !read[o.path] && r.Float64() < wrong {
			said = append(said, o.path)
		}
	}
	if wrong > 0 {
		r.Shuffle(len(said), func(i, j int) { said[i], said[j] = said[j], said[i] })
	}
	return profileAfter(exactRules(ProfileOptions{}.withDefaults()), orderOf(said...))
}

// Whatever a record says, an action whose files mention others waits at most 1.2 times as long as with
// none, and a round trip or as long as the first window takes, or as the pace lets calls take longer,
// but for a few runs of a hundred; if the record is right, it always does. On average it does not
// wait longer.
func TestAnyRecordWithMentions(t *testing.T) {
	type figure struct {
		runs, above  int
		waits, none  time.Duration
		right, wrong func(r *rand.Rand) float64
	}
	random := (*rand.Rand).Float64
	always := func(share float64) func(*rand.Rand) float64 { return func(*rand.Rand) float64 { return share } }
	figures := map[string]*figure{
		"right": {right: always(1), wrong: always(0)}, "right, with others": {right: always(1), wrong: random},
		"half right": {right: always(0.5), wrong: random}, "wrong": {right: always(0), wrong: random},
		"any": {right: random, wrong: random}, "of other paths": {right: always(0), wrong: always(0)},
	}
	runs, above := 0, 0
	for seed := range max(scenes(12), 12) { // shares of fewer say nothing
		r := rand.New(rand.NewPCG(seed, 77))
		s := randomTelling(t, r, []float64{0.5, 0.8, 0.95}[seed%3])
		away := mbit([]float64{30, 100, 1000}[r.IntN(3)], []time.Duration{2, 10, 50}[r.IntN(3)]*time.Millisecond)
		slack := max(away.trip, paceSlack, time.Duration(firstWindow/away.bytesPerSecond*1e9))
		without := func() time.Duration { return s.waits(t, away, nil, None, LimitsOptions{}) }
		none := without()
		for _, kind := range slices.Sorted(maps.Keys(figures)) {
			f := figures[kind]
			p := s.recordOf(r, f.right(r), f.wrong(r))
			for _, o := range []Origin{Exact, Coarse} {
				with := func() time.Duration { return s.waits(t, away, p, o, LimitsOptions{}) }
				got := with()
				f.runs, f.waits, f.none = f.runs+1, f.waits+got, f.none+none
				if (comparison{slack, with, without}).isAbove(got, none) {
					f.above++
					t.Logf("seed %d, %.0f Mbit/s, %s: waits %s with a record that is %s (%s), %s with none",
						seed, away.bytesPerSecond*8/1e6, away.trip, got, kind, o, none)
				}
			}
		}
	}
	for kind, f := range figures {
		t.Logf("%s: waits %s with records, %s with none; %d of %d above", kind, f.waits, f.none, f.above, f.runs)
		if f.waits > f.none*102/100 {
			t.Errorf("%s: waits %s with records, %s with none", kind, f.waits, f.none)
		}
		runs, above = runs+f.runs, above+f.above
	}
	if figures["right"].above > 0 || above > 1+runs*5/100 {
		t.Errorf("%d of %d runs wait longer, of those with right records %d", above, runs, figures["right"].above)
	}
}
