package spill

import (
	"math"
	"testing"
	"time"
)

// TestTurnsAreWhereCostsAreEqual: at the computed number of turns, the cost of waiting equals the
// cost of the larger worker.
func TestTurnsAreWhereCostsAreEqual(t *testing.T) {
	for _, x := range []float64{0.2, 0.5, 0.8} {
		for _, classes := range [][2]uint32{{1, 2}, {1, 4}, {2, 3}, {0, 8}} {
			turns := Turns(classes[0], classes[1], 0, x)
			cost := func(delay float64, class uint32) float64 {
				return math.Pow(delay, 1-x) * math.Pow(float64(max(class, 1)), x)
			}
			if small, large := cost(1+turns, classes[0]), cost(1, classes[1]); math.Abs(small-large) > 1e-9*large {
				t.Errorf("x = %g, classes %v: %g turns cost %g, the larger one %g", x, classes, turns, small, large)
			}
		}
	}
}

func TestWorth(t *testing.T) {
	for name, test := range map[string]struct {
		q      Queue
		waited time.Duration
		open   bool
		want   bool
	}{
		"three for one":            {q: Queue{Waiting: 3, Workers: 1, Typical: time.Second}},
		"four for one":             {q: Queue{Waiting: 4, Workers: 1, Typical: time.Second}, want: true},
		"four for two":             {q: Queue{Waiting: 4, Workers: 2, Typical: time.Second}},
		"four for two, begun":      {q: Queue{Waiting: 4, Workers: 2, Typical: time.Second}, open: true, want: true},
		"half as many, begun":      {q: Queue{Waiting: 3, Workers: 2, Typical: time.Second}, open: true},
		"a turn too few":           {q: Queue{Waiting: 1, Workers: 1, Typical: time.Second}, waited: 2 * time.Second},
		"three turns":              {q: Queue{Waiting: 1, Workers: 1, Typical: time.Second}, waited: 3 * time.Second, want: true},
		"nobody for three turns":   {q: Queue{Waiting: 1, Typical: time.Second, Startup: 3 * time.Second}, want: true},
		"nobody for two turns":     {q: Queue{Waiting: 1, Typical: time.Second, Startup: 2 * time.Second}},
		"nobody for long, no time": {q: Queue{Waiting: 1, Startup: time.Hour}, want: true},
	} {
		if got := test.q.Worth(Turns(1, 4, 0, Exponent), test.waited, test.open); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// TestStrangersCountAsLarger: each property by which workers suit worse counts like a class twice
// as large. Workers that suit equally well cost nothing.
func TestStrangersCountAsLarger(t *testing.T) {
	for name, test := range map[string]struct {
		class, larger uint32
		stranger      int
		want          float64
	}{
		"the same":                    {1, 1, 0, 0},
		"one property":                {0, 1, 1, 1},
		"two properties":              {4, 4, 2, 3},
		"a property and twice as big": {2, 4, 1, 3},
		"nearer":                      {1, 1, -2, 0},
		"nearer and larger":           {1, 4, -1, 1},
	} {
		if got := Turns(test.class, test.larger, test.stranger, Exponent); got != test.want {
			t.Errorf("%s: %g turns, want %g", name, got, test.want)
		}
	}
	two, one := Queue{Waiting: 2, Workers: 1, Typical: time.Second}, Queue{Waiting: 1, Workers: 1, Typical: time.Second}
	if !one.Worth(0, 0, false) || two.Strain(0, 0) <= one.Strain(0, 0) || one.Strain(0, 0) <= two.Strain(1, 0) {
		t.Error("a worker that costs nothing is not worth most to whoever waits most")
	}
}
