package prefetch

import (
	"fmt"
	"math/rand/v2"
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
	run  recorded
}

// tell returns the telling of files that each mention others, by their index.
func tell(t *testing.T, files []opened, mentions [][]int) telling {
	s := telling{says: map[digest.Digest]string{}, in: recorded(files).stage(t)}
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
	for _, o := range []Origin{Exact, Coarse} {
		away := mbit(100, 10*time.Millisecond)
		got := s.waits(t, away, s.butFirst(), o, LimitsOptions{})
		want := s.waits(t, away, s.butFirst(), o, LimitsOptions{NoMentions: true})
		if got > want*12/10+time.Duration(512<<10/away.bytesPerSecond*1e9) {
			t.Errorf("%s: waits %s, %s without mentions", o, got, want)
		}
	}
}
