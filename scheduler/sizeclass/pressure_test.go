package sizeclass

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// with has a run of a on a class succeed.
func (f *farm) with(a Action, class uint32, r Run) {
	f.Helper()
	l := Learner{options: &f.analyzer.options, action: a, choice: Choice{Class: class}}
	f.analyzer.Learn(f.Context(), l.Succeeded(r))
}

// TestMemoryPressure has a run that waits for memory say that the action is faster where there is
// more, and would be as slow where there is less.
func TestMemoryPressure(t *testing.T) {
	pressed := Run{Duration: 60 * time.Second, CPU: 10 * time.Second, CPUs: 2, MemoryStall: 50 * time.Second}
	calm := pressed
	calm.MemoryStall = 0
	for _, c := range []struct {
		run  Run
		want uint32
	}{{pressed, 4}, {calm, 1}} {
		f := newFarm(t, Options{}, 1, 2, 4)
		a := testAction(1)
		f.with(a, 2, c.run)
		if list, choice := f.analyzer.Analyze(t.Context(), a).Assess(f.conditions()); choice.Class != c.want {
			t.Errorf("%+v: class %d, want %d: %s; %+v", c.run, choice.Class, c.want, choice.Reason, list)
		}
	}
}

// TestOneCPUThatIsEnough has a run on one CPU for which no thread waited say that it has one thread.
func TestOneCPUThatIsEnough(t *testing.T) {
	for _, c := range []struct {
		waits time.Duration
		known bool
	}{{0, false}, {time.Millisecond, true}, {20 * time.Second, false}} {
		f := newFarm(t, Options{}, 1, 4)
		a := testAction(1)
		f.with(a, 1, Run{Duration: 30 * time.Second, CPU: 29 * time.Second, CPUs: 1, CPUWait: c.waits})
		list, _ := f.analyzer.Analyze(t.Context(), a).Assess(f.conditions())
		if known := list[0].Score > 0; known != c.known {
			t.Errorf("threads waited for %s: %+v", c.waits, list[0])
		}
		if c.known && math.Abs(list[0].Score-0.5) > 0.01 {
			t.Errorf("one thread: %+v", list[0])
		}
	}
}

// TestRunsAreKept reads random runs as they were written, and those of workers that measure less.
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
				r.MemoryStall, r.CPUWait = someDuration(random), someDuration(random)
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
