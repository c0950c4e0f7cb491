package spill

import (
	"math"
	"testing"
	"time"
)

// TestTurnsAreWhereCostsAreEqual has the cost of waiting for so many turns be that of the larger worker.
func TestTurnsAreWhereCostsAreEqual(t *testing.T) {
	for _, x := range []float64{0.2, 0.5, 0.8} {
		for _, classes := range [][2]uint32{{1, 2}, {1, 4}, {2, 3}, {0, 8}} {
			turns := Turns(classes[0], classes[1], x)
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
		if got := test.q.Worth(Turns(1, 4, Exponent), test.waited, test.open); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
