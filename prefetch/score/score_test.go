package score

import (
	"math"
	"math/rand/v2"
	"testing"
)

// model returns the score of runs by the definition of a falling average: each run counts Latest of
// what those after it leave, and the first one all the rest.
func model(runs []float64, r Rules) (score float64) {
	left := 1.0
	for i := len(runs) - 1; i > 0; i-- {
		score += left * r.Latest * runs[i]
		left *= 1 - r.Latest
	}
	return score + left*runs[0]
}

// TestAfter compares scores with the model, and sees them survive in a record.
func TestAfter(t *testing.T) {
	random := rand.New(rand.NewPCG(20, 2))
	for range 1000 {
		r := Rules{Latest: 0.05 + 0.95*random.Float64(), Poor: random.Float64()}
		var s Score
		if s.PerMille() != nil || !r.Trusts(s) {
			t.Fatal("there is a score without a run")
		}
		var runs []float64
		for range 1 + random.IntN(20) {
			right := random.Float64()
			runs, s = append(runs, right), s.After(right, r)
			want := model(runs, r)
			if math.Abs(s.right-want) > 1e-9 || r.Trusts(s) != (s.right > r.Poor) {
				t.Fatalf("%v after %v, want %g", s, runs, want)
			}
			if kept := Parse(s.PerMille()); !kept.Known() || math.Abs(kept.right-s.right) > 0.5/perMille+1e-9 {
				t.Fatalf("%v was %v in a record", kept, s)
			}
		}
	}
	if s := Parse(new(uint32(perMille + 1))); s.Known() {
		t.Errorf("a score out of range: %v", s)
	}
}

// TestTrust: however good a profile was, one run that shows nothing of it is enough for half of the
// weight, and two good ones let it be used again.
func TestTrust(t *testing.T) {
	r := Rules{Latest: 0.5, Poor: 0.5}
	for before := range perMille + 1 {
		s := Parse(new(uint32(before)))
		if s = s.After(0, r); r.Trusts(s) {
			t.Fatalf("%v of %d is used", s, before)
		}
		if s = s.After(1, r).After(1, r); !r.Trusts(s) {
			t.Fatalf("%v of %d is not used", s, before)
		}
	}
}

// TestRenewed: a profile that is replaced each time because it was wrong is used twice.
func TestRenewed(t *testing.T) {
	r := Rules{Latest: 0.5, Poor: 0.5}
	for name, s := range map[string]Score{"new": {}, "good": {true, 1}, "bad": {true, 0}} {
		used := 0
		for range 20 {
			if r.Trusts(s) {
				used++
			}
			s = Renewed(s, s.After(0, r))
		}
		if want := map[string]int{"new": 2, "good": 2, "bad": 0}[name]; used != want {
			t.Errorf("%s: used in %d runs, want %d", name, used, want)
		}
	}
}
