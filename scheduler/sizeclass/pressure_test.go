package sizeclass

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// with records a successful run of a on a class.
func (f *farm) with(a Action, class uint32, r Run) {
	f.Helper()
	l := Learner{options: &f.analyzer.options, action: a, choice: Choice{Class: class}}
	f.analyzer.Learn(f.Context(), l.Succeeded(r))
}

// TestMemoryPressure: a run that waits for memory shows that the action is faster with more memory,
// and would be at least as slow with less.
func TestMemoryPressure(t *testing.T) {
	pressed := Run{Duration: 60 * time.Second, CPU: 10 * time.Second, CPUs: 2, MemoryStall: 50 * time.Second}
	tight, calm := pressed, pressed
	tight.MemoryStall, calm.MemoryStall = 6*time.Second, 0
	for _, c := range []struct {
		run  Run
		want uint32
	}{{pressed, 4}, {tight, 2}, {calm, 1}} {
		f := newFarm(t, Options{}, 1, 2, 4)
		a := testAction(1)
		f.with(a, 2, c.run)
		if list, choice := f.analyzer.Analyze(t.Context(), a).Assess(f.conditions()); choice.Class != c.want {
			t.Errorf("%+v: class %d, want %d: %s; %+v", c.run, choice.Class, c.want, choice.Reason, list)
		}
	}
}

// TestThrottled: a run whose threads used up one CPU shows that they can use more. A run that was
// not throttled shows nothing: the command may start as many threads as it finds CPUs.
func TestThrottled(t *testing.T) {
	for _, c := range []struct {
		throttled time.Duration
		want      float64 // score of class 1
	}{{0, 0}, {time.Second, 0}, {28 * time.Second, 30. / (2 + 28./4) * math.Sqrt(1./4)}} {
		f := newFarm(t, Options{}, 1, 4)
		a := testAction(1)
		f.with(a, 1, Run{Duration: 30 * time.Second, CPU: 30 * time.Second, CPUs: 1, Throttled: c.throttled})
		list, _ := f.analyzer.Analyze(t.Context(), a).Assess(f.conditions())
		if math.Abs(list[0].Score-c.want) > 1e-6 {
			t.Errorf("throttled for %s: %+v, want the score %g", c.throttled, list[0], c.want)
		}
	}
}

// TestRunsAreKept writes and reads random runs, including those of workers that measure less.
func TestRunsAreKept(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 7))
	for range 300 {
		var list []run
		for range random.IntN(5) {
			r := run{
				class: random.Uint32N(9), outcome: Outcome(1 + random.IntN(4)), action: random.Uint64(),
				Run: Run{Duration: someDuration(random), CPU: someDuration(random), CPUs: random.ExpFloat64(), PeakMemoryBytes: random.Int64()},
			}
			if random.IntN(2) == 0 {
				r.MemoryStall, r.Throttled = someDuration(random), someDuration(random)
			}
			r.Run = r.sane()
			list = append(list, r)
		}
		value, err := marshalRuns(list)
		if err != nil {
			t.Fatal(err)
		}
		if got := parseRuns(value); !slices.Equal(got, list) {
			t.Fatalf("%+v, want %+v", got, list)
		}
	}
	// One on class 8 that succeeded after 3 ms, without any other figure.
	old := []byte("\x0a\x09\x08\x08\x10\x01\x18\xc0\x8d\xb7\x01")
	if got := parseRuns(old); !slices.Equal(got, []run{{class: 8, outcome: Succeeded, Run: Run{Duration: 3 * time.Millisecond}}}) {
		t.Errorf("%+v", got)
	}
}
