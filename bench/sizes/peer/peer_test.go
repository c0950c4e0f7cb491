package peer

import (
	"math"
	"slices"
	"testing"
	"time"
)

var (
	classes = []uint32{1, 2, 4, 8}
	start   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
)

func (a *Analyzer) succeed(class uint32, times ...time.Duration) {
	for _, d := range times {
		a.Learn("a", class, d, false, false)
	}
}

func TestUnknownActionsTryEachClass(t *testing.T) {
	a := New(0.5, 1)
	for _, class := range classes[:3] {
		if got := a.Choose("a", classes, time.Hour, start); got != (Start{Class: class, Timeout: 10 * time.Second}) {
			t.Errorf("class %d: %+v", class, got)
		}
		a.succeed(class, time.Second)
	}
	if got := a.Choose("a", classes, time.Hour, start); got.Class != 8 {
		t.Errorf("%+v", got)
	}
}

// TestTraining checks that a class that fails is tried in the background, and then the next one.
func TestTraining(t *testing.T) {
	a := New(0.5, 1)
	a.succeed(8, time.Minute)
	if got := a.Choose("a", classes, time.Hour, start); got != (Start{Class: 8, Timeout: time.Hour, Train: 1}) {
		t.Errorf("%+v", got)
	}
	a.Learn("a", 1, time.Second, false, true)
	if got := a.Choose("a", classes, time.Hour, start); got.Train != 2 {
		t.Errorf("%+v", got)
	}
	if got := a.TrainingTimeout("a", 2, 8, time.Hour); got != 3*time.Minute {
		t.Errorf("%s", got)
	}
}

func TestFailureOnTheLargest(t *testing.T) {
	a := New(0.5, 1)
	a.Failed("a", start)
	for after, class := range map[time.Duration]uint32{time.Hour: 8, 25 * time.Hour: 1} {
		if got := a.Choose("a", classes, time.Hour, start.Add(after)); got.Class != class {
			t.Errorf("%s later: %+v", after, got)
		}
	}
}

// TestFaster compares with counting by hand.
func TestFaster(t *testing.T) {
	for _, c := range []struct {
		a, b set
		want float64
	}{
		{set{}, set{}, 0.5},
		{set{times: []float64{1}}, set{}, 1. / 3}, // a class with fewer runs has an advantage
		{set{times: []float64{1, 2}}, set{times: []float64{3}}, (1 + 1 + 4.) / (2 + 3 + 4)},
		{set{times: []float64{3}}, set{times: []float64{3, 4}, failures: 1}, (1 + 3 + 1 + 2 + 2.) / (2 + 4 + 6)},
		{set{failures: 2}, set{failures: 1}, (1 + 1 + 2.) / (2 + 3 + 4)},
	} {
		got, other := c.a.faster(c.b), c.b.faster(c.a)
		if math.Abs(got-c.want) > 1e-9 || math.Abs(got+other-1) > 1e-9 {
			t.Errorf("%+v than %+v: %g, want %g; the other way %g", c.a, c.b, got, c.want, other)
		}
	}
}

// TestRanks compares with the exact solution for two classes: each one's probability is the
// probability that it is faster.
func TestRanks(t *testing.T) {
	a, b := set{times: []float64{1, 2, 5}}, set{times: []float64{3}, failures: 2}
	if got := ranks([]set{a, b}); math.Abs(got[0]-a.faster(b)) > 0.01 || math.Abs(got[0]+got[1]-1) > 1e-9 {
		t.Errorf("%v, want %g", got, a.faster(b))
	}
}

// TestSettles checks that the analyzer prefers the class with the best normalised times, and
// sometimes tries the others.
func TestSettles(t *testing.T) {
	a := New(0.5, 1)
	count := map[uint32]int{}
	took := map[uint32]time.Duration{1: 100 * time.Second, 2: 50 * time.Second, 4: 30 * time.Second, 8: 25 * time.Second}
	for i := range 1000 {
		s := a.Choose("a", classes, time.Hour, start)
		for _, class := range slices.Compact([]uint32{s.Class, s.Train}) {
			if class > 0 {
				a.Learn("a", class, took[class], took[class] > s.Timeout, false)
			}
		}
		if i >= 500 {
			count[s.Class]++
		}
	}
	if count[4] < 300 || count[4] == 500 {
		t.Errorf("%v", count)
	}
}
