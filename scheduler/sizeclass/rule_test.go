package sizeclass

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/proto/names"
)

// TestAcceptable has the table of ADR 7: an action that takes a minute on class 8.
func TestAcceptable(t *testing.T) {
	for x, want := range map[float64][3]float64{
		0.3: {112.0, 90.9, 73.9},
		0.5: {169.7, 120, 84.9},
		0.7: {257.2, 158.3, 97.5},
	} {
		f := newFarm(t, Options{Exponent: x, Plain: true}, 1, 2, 4, 8)
		a := testAction(1)
		f.learn(a, 8, 59*time.Second, 61*time.Second, time.Minute, time.Hour/2, time.Second)
		list, _ := f.analyzer.Analyze(t.Context(), a).Assess(f.conditions())
		for i, seconds := range want {
			if got := list[i].Acceptable.Seconds(); math.Abs(got-seconds) > 0.06 {
				t.Errorf("x = %g, class %d: %.2f s, want %.1f s", x, list[i].Size, got, seconds)
			}
			if got := list[i].Timeout.Seconds(); math.Abs(got-1.5*seconds) > 0.1 {
				t.Errorf("x = %g, class %d: timeout %.2f s, want %.2f s", x, list[i].Size, got, 1.5*seconds)
			}
		}
		if list[3].Timeout != a.Timeout {
			t.Errorf("largest class: timeout %s, want the client's", list[3].Timeout)
		}
	}
}

// learn has runs of a on a class succeed.
func (f *farm) learn(a Action, class uint32, durations ...time.Duration) {
	for _, d := range durations {
		l := Learner{options: &f.analyzer.options, action: a, choice: Choice{Class: class}}
		f.analyzer.Learn(f.Context(), l.Succeeded(Run{Duration: d}))
	}
}

// TestProbability counts trials by hand.
func TestProbability(t *testing.T) {
	f := newFarm(t, plain(), 1, 4)
	a := testAction(1)
	expect := func(when string, want float64) {
		t.Helper()
		list, _ := f.analyzer.Analyze(t.Context(), a).Assess(f.conditions())
		if list[0].Probability != want {
			t.Errorf("%s: %g, want %g", when, list[0].Probability, want)
		}
	}
	expect("nothing known", 1./2)
	f.learn(a, 1, 6*time.Second)
	expect("one that is below what is acceptable without knowledge", 2./3)
	f.learn(a, 1, 7*time.Second)
	expect("one that is above", 2./4)
	f.learn(a, 4, 4*time.Second)
	expect("both are within twice of what class 4 takes", 3./4)
	f.learn(a, 4, 2*time.Second)
	expect("both are within twice of 3 s, nearly", 2./4)
	late := Learner{options: &f.analyzer.options, action: a, choice: Choice{Class: 1}}
	f.analyzer.Learn(t.Context(), &Lesson{action: a, runs: late.with(TimedOut, Run{Duration: 5 * time.Second})})
	expect("a timeout that is too early to tell", 2./4)
	f.analyzer.Learn(t.Context(), &Lesson{action: a, runs: late.with(TimedOut, Run{Duration: 15 * time.Second})})
	expect("a timeout that tells", 2./5)
	f.analyzer.Learn(t.Context(), &Lesson{action: a, runs: late.with(Failed, Run{})})
	expect("a failure", 2./6)
	for range 40 {
		f.learn(a, 1, 4*time.Second)
	}
	expect("only the last 32 count", 33./34)
}

// TestChance has many actions choose with the same past: each class has its share.
func TestChance(t *testing.T) {
	f := newFarm(t, plain(), 1, 2, 4)
	count := map[uint32]int{}
	const n = 4000
	for i := range n {
		choice, _ := f.analyzer.Analyze(t.Context(), testAction(i)).Select(f.conditions())
		count[choice.Class]++
	}
	for class, want := range map[uint32]float64{1: 1. / 2, 2: 1. / 4, 4: 1. / 4} {
		if got := float64(count[class]) / n; math.Abs(got-want) > 0.03 {
			t.Errorf("class %d: %.3f of the choices, want %.2f", class, got, want)
		}
	}
}

func TestSeedMattersAndRestartDoesNot(t *testing.T) {
	choices := func(seed uint64) (s string) {
		f := newFarm(t, Options{Seed: seed, Plain: true}, 1, 2, 4, 8)
		for i := range 60 {
			on, _, _ := f.run(testAction(i%7), program{seconds: float64(i%7) * 3, parallel: float64(i % 3)})
			s += fmt.Sprint(on)
			if i%2 == 0 {
				f.restart()
			}
		}
		return s
	}
	once := choices(1)
	if again := choices(1); again != once {
		t.Error("the same past gives other choices")
	}
	if choices(2) == once {
		t.Error("the seed does not matter")
	}
}

func TestTimeouts(t *testing.T) {
	a := testAction(1)
	for _, c := range []struct {
		name    string
		client  time.Duration
		largest time.Duration // the duration there; 0 if unknown
		want    [3]time.Duration
	}{
		{"nothing known", time.Hour, 0, [3]time.Duration{10 * time.Second, 10 * time.Second, time.Hour}},
		{"quick", time.Hour, time.Second, [3]time.Duration{10 * time.Second, 10 * time.Second, time.Hour}},
		{"slow", time.Hour, time.Minute, [3]time.Duration{180 * time.Second, 127279 * time.Millisecond, time.Hour}},
		{"client is hasty", 2 * time.Minute, time.Minute, [3]time.Duration{120 * time.Second, 120 * time.Second, 120 * time.Second}},
		{"client is very hasty", time.Second, 0, [3]time.Duration{time.Second, time.Second, time.Second}},
	} {
		f := newFarm(t, plain(), 1, 2, 4)
		if c.largest > 0 {
			f.learn(a, 4, c.largest)
		}
		a.Timeout = c.client
		list, _ := f.analyzer.Analyze(t.Context(), a).Assess(f.conditions())
		for i, want := range c.want {
			if got := list[i].Timeout.Truncate(time.Millisecond); got != want {
				t.Errorf("%s: class %d: %s, want %s", c.name, list[i].Size, got, want)
			}
		}
	}
}

func TestMispredictionIsInvisible(t *testing.T) {
	for name, p := range map[string]program{
		"out of memory": {seconds: 1, memory: 2},
		"timeout":       {seconds: 60, parallel: 59},
	} {
		f := newFarm(t, plain(), 1, 4)
		retried := 0
		for i := range 20 {
			on, last, outcome := f.run(testAction(i), p)
			if outcome != Succeeded || on[len(on)-1] != 4 {
				t.Errorf("%s: ended on class %d: %s", name, last.Class, outcome)
			}
			if len(on) == 2 {
				retried++
				if !strings.Contains(last.Reason, "on class 1") || last.Timeout != time.Hour {
					t.Errorf("%s: second run: %+v", name, last)
				}
			}
		}
		if retried < 3 {
			t.Errorf("%s: %d of 20 ran on class 1 first", name, retried)
		}
	}
}

func TestFailureIsFinalOnTheLargestClass(t *testing.T) {
	f := newFarm(t, Options{}, 1, 4)
	broken, fine := program{seconds: 1, broken: true}, program{seconds: 1}
	a := testAction(1)
	f.times(20, a, fine)
	if on, _, outcome := f.run(a, broken); outcome != Failed || fmt.Sprint(on) != "[1 4]" {
		t.Fatalf("ran on %d: %s", on, outcome)
	}
	before := f.store.snapshot()
	f.now = f.now.Add(23 * time.Hour)
	for range 5 {
		choice, learner := f.analyzer.Analyze(t.Context(), a).Select(f.conditions())
		learner.Abandoned()
		if choice.Class != 4 || !strings.Contains(choice.Reason, "23h0m0s ago") {
			t.Errorf("a day has not passed: %+v", choice)
		}
	}
	f.now = f.now.Add(2 * time.Hour)
	if choice, _ := f.analyzer.Analyze(t.Context(), a).Select(f.conditions()); choice.Class != 1 {
		t.Errorf("after a day: %+v", choice)
	}
	f.now = f.now.Add(-72 * time.Hour)
	if choice, _ := f.analyzer.Analyze(t.Context(), a).Select(f.conditions()); choice.Class != 1 {
		t.Errorf("two days before: %+v", choice)
	}
	if k := a.key(names.RunsBucket); string(before[k]) != string(f.store.snapshot()[k]) {
		t.Error("a broken action says something about classes")
	}
}

func TestAbandonedLearnsNothing(t *testing.T) {
	f := newFarm(t, Options{}, 1, 4)
	a := testAction(1)
	_, learner := f.analyzer.Analyze(t.Context(), a).Select(f.conditions())
	learner.Abandoned()
	l := Learner{options: &f.analyzer.options, action: a, choice: Choice{Class: 1, Hedge: time.Second}}
	verdict := l.Failed(Failure{Now: f.now, Outcome: OutOfMemory, Largest: 4})
	verdict.Retry.Abandoned()
	f.analyzer.Learn(t.Context(), verdict.Lesson)
	if n := len(f.store.snapshot()); n != 0 {
		t.Errorf("%d records were written", n)
	}
}

func TestUsedTwice(t *testing.T) {
	f := newFarm(t, Options{}, 1, 4)
	_, learner := f.analyzer.Analyze(t.Context(), testAction(1)).Select(f.conditions())
	learner.Abandoned()
	for name, again := range map[string]func(){
		"abandoned": learner.Abandoned,
		"succeeded": func() { learner.Succeeded(Run{}) },
		"failed":    func() { learner.Failed(Failure{Outcome: Failed}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s works twice", name)
				}
			}()
			again()
		}()
	}
}

func TestHedging(t *testing.T) {
	f := newFarm(t, Options{}, 1, 4)
	a := testAction(1)
	c := f.conditions()
	c.CanHedge = true
	f.learn(a, 4, time.Minute)
	f.learn(a, 1, time.Minute)
	choice, first := f.analyzer.Analyze(t.Context(), a).Select(c)
	if choice.Class != 1 || choice.Hedge != 6*time.Minute || choice.Timeout != a.Timeout {
		t.Fatalf("%+v", choice)
	}
	second := first.Overdue(4)
	if got := second.Choice(); got.Class != 4 || got.Timeout != a.Timeout {
		t.Errorf("second run: %+v", got)
	}
	f.analyzer.Learn(t.Context(), second.Succeeded(Run{Duration: time.Minute}))
	first.Abandoned()
	list, _ := f.analyzer.Analyze(t.Context(), a).Assess(c)
	if list[0].TimedOut != 1 || list[0].Succeeded != 1 || list[1].Succeeded != 2 {
		t.Errorf("learned %+v", list)
	}
	if choice, _ := f.analyzer.Analyze(t.Context(), a).Select(f.conditions()); choice.Hedge != 0 {
		t.Errorf("nobody can hedge: %+v", choice)
	}
}
