package sizeclass

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestMaxDelay compares what is acceptable with the definition: on the smallest class an action takes
// at most MaxDelay longer, and no class may take longer than by the rule.
func TestMaxDelay(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 8))
	for i := range 300 {
		o := Options{Exponent: 0.1 + 0.8*random.Float64(), MaxDelay: time.Duration(math.Exp(random.Float64()*8)) * time.Second}
		f := newFarm(t, o, 1, 2, 4, 8)
		a := testAction(i)
		took := time.Duration(math.Exp(random.Float64()*9) * float64(time.Second))
		f.learn(a, 8, took)
		list, _ := f.analyzer.Analyze(t.Context(), a).Assess(f.conditions())
		byRule := took.Seconds() * math.Pow(8, o.Exponent)
		want := min(byRule, (took + o.MaxDelay).Seconds())
		if got := list[0].Acceptable.Seconds(); math.Abs(got-want) > want/1e6 {
			t.Errorf("x = %g, %s longer at most: %s there, %g s acceptable, want %g", o.Exponent, o.MaxDelay, took, got, want)
		}
		for j := range 3 {
			after := took
			if j < 2 {
				after = list[j+1].Acceptable
			}
			if list[j].Acceptable < after {
				t.Errorf("class %d may take %s, a larger one %s", list[j].Size, list[j].Acceptable, after)
			}
		}
	}
}

// TestLongActionsAreSlowedLess has the same program be short and long: as a short one it runs on a
// small worker, as a long one it does not.
func TestLongActionsAreSlowedLess(t *testing.T) {
	for scale, want := range map[float64]uint32{1: 2, 100: 8} {
		f := newFarm(t, Options{}, 1, 2, 4, 8)
		a := testAction(int(scale))
		p := program{seconds: 10 * scale, parallel: 6.5 * scale}
		f.times(10, a, p)
		if on, choice, _ := f.run(a, p); on[0] != want {
			t.Errorf("%g s on one CPU: class %d, want %d: %s", p.seconds, on[0], want, choice.Reason)
		}
	}
}

// TestSerialActionsStaySmall: an action that is as fast on the smallest class runs there, however long
// it takes.
func TestSerialActionsStaySmall(t *testing.T) {
	for _, took := range []time.Duration{time.Minute, 20 * time.Minute, 45 * time.Minute} {
		for _, classes := range [][]uint32{{1, 8}, {1, 2, 4, 8}, {1, 64}} {
			f := newFarm(t, Options{}, classes...)
			a := testAction(1)
			p := program{seconds: took.Seconds()}
			f.times(20, a, p)
			if on, choice, _ := f.run(a, p); on[0] != 1 {
				t.Errorf("%s on classes %v: class %d: %s", took, classes, on[0], choice.Reason)
			}
		}
	}
}

func TestNearlyTheSameScore(t *testing.T) {
	for _, c := range []struct {
		scores  []float64
		seconds []time.Duration // expected
		want    int
	}{
		{[]float64{0.35, 0.5, 0.7, 1}, []time.Duration{8, 4, 2, 1}, 0},
		{[]float64{1.03, 0.91, 0.9, 1}, []time.Duration{8, 4, 2, 1}, 2},
		{[]float64{0.97, 0, 0.5, 0.52}, []time.Duration{8, 0, 2, 1}, 3},
		{[]float64{0.97, 0, 0.5, 0.52}, []time.Duration{8, 0, 1, 1}, 2},
		{[]float64{0.98, 1.2, 1.5, 1}, []time.Duration{8, 4, 2, 1}, 3},
		{[]float64{0.98, 1.2, 1.5, 1}, []time.Duration{1, 1, 1, 1}, 0},
	} {
		list := make([]Assessment, len(c.scores))
		for i, score := range c.scores {
			list[i] = Assessment{Class: Class{Size: uint32(i)}, Score: score, Expected: c.seconds[i] * time.Second}
		}
		if got := leastOf(list); got.Size != uint32(c.want) {
			t.Errorf("%v, %v: the one at %d, want %d", c.scores, c.seconds, got.Size, c.want)
		}
		list[c.want].RuledOut = "x"
		if got := leastOf(list); got.Size == uint32(c.want) {
			t.Errorf("%v: one that is ruled out", c.scores)
		}
	}
}

// TestPatience: the known runs on a class determine how long a run may take before a second one
// starts: as long as some amount of work explains it, unless runs get stuck there.
func TestPatience(t *testing.T) {
	const settled, stuck, slow = 0, 1, 2
	for name, c := range map[string]struct {
		runs []int
		want time.Duration
	}{
		"never there":                {nil, 30 * time.Second},
		"it succeeded":               {[]int{settled}, time.Minute},
		"it got stuck":               {[]int{stuck}, 30 * time.Second},
		"stuck as often":             {[]int{settled, stuck}, 30 * time.Second},
		"stuck for once":             {[]int{settled, stuck, settled}, time.Minute},
		"slow, but it ended":         {[]int{settled, slow}, time.Hour},
		"slow for once, stuck later": {[]int{settled, slow, stuck, settled}, time.Minute},
	} {
		f := newFarm(t, Options{}, 1, 4)
		a := testAction(1)
		for range 5 {
			f.learn(a, 4, 10*time.Second)
		}
		for _, r := range c.runs {
			l := Learner{options: &f.analyzer.options, action: a, choice: Choice{Class: 1}}
			switch r {
			case settled:
				f.learn(a, 1, 9*time.Second)
			case slow:
				f.learn(a, 1, 2*time.Minute)
			case stuck:
				f.analyzer.Learn(t.Context(), &Lesson{action: a, runs: l.with(TimedOut, Run{Duration: 30 * time.Second})})
			}
		}
		list, _ := f.analyzer.Analyze(t.Context(), a).Assess(f.conditions())
		if list[0].Patience != c.want || list[1].Patience != a.Timeout {
			t.Errorf("%s: %s, then %s, want %s", name, list[0].Patience, list[1].Patience, c.want)
		}
	}
}

// TestSettlesNearTheBest has random programs. Each must find a class whose delay and cost are
// nearly minimal. The test computes both from the program alone.
func TestSettlesNearTheBest(t *testing.T) {
	random := rand.New(rand.NewPCG(13, 21))
	classes := []uint32{1, 2, 4, 8}
	for i := range 100 {
		p := program{seconds: math.Exp(random.Float64() * 7)}
		p.parallel, p.memory = p.seconds*random.Float64(), math.Exp(random.Float64()*2)
		f := newFarm(t, Options{}, classes...)
		a := testAction(i)
		f.times(25, a, p)
		on, choice, _ := f.run(a, p)
		score := func(class uint32) float64 {
			if p.memory > float64(class) {
				return math.Inf(1)
			}
			least, _ := p.on(8, time.Hour)
			r, _ := p.on(class, time.Hour)
			x := min(0.5, math.Log(1+f.analyzer.options.MaxDelay.Seconds()/least.Duration.Seconds())/math.Log(8))
			return r.Duration.Seconds() / least.Duration.Seconds() * math.Pow(float64(class)/8, x)
		}
		best := math.Inf(1)
		for _, class := range classes {
			best = min(best, score(class))
		}
		if got := score(on[0]); len(on) > 1 || got > best*nearly*1.001 {
			t.Errorf("%+v runs on %d, which is %.2f, the least is %.2f: %s", p, on, got, best, choice.Reason)
		}
	}
}
