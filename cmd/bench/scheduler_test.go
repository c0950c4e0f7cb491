package main

import (
	"testing"
)

func TestJain(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{3, 3, 3}, 1},
		{[]float64{0, 0, 7, 0}, 0.25},
		{[]float64{1, 2, 3}, 36.0 / 42},
	} {
		if got := jain(test.values); got != test.want {
			t.Errorf("jain(%v) is %v, want %v", test.values, got, test.want)
		}
	}
}

// TestVirtualFarm sees that a farm decides once for each end of an action, and has
// as many actions queued after it.
func TestVirtualFarm(t *testing.T) {
	const workers, queued, steps = 7, 20, 100
	f, err := newVirtualFarm(workers)
	if err != nil {
		t.Fatal(err)
	}
	metadata := invocations(3)
	for i := range workers + queued + steps {
		op := f.operation(i, metadata[i%3], "")
		if i >= workers+queued {
			f.spare = append(f.spare, op)
		} else if err := f.submit(op); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.steps(t.Context(), steps); err != nil {
		t.Fatal(err)
	}
	if c := f.state.Counts(); c.Queued != queued || c.Busy != workers || f.decisions != workers+steps {
		t.Errorf("%+v after %d decisions", c, f.decisions)
	}
}
