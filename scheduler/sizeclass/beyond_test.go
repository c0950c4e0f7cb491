package sizeclass

import (
	"fmt"
	"math"
	"testing"
	"time"
)

// TestSettles: actions find the class that they belong on, and stay there, even after a restart.
func TestSettles(t *testing.T) {
	for _, c := range []struct {
		name    string
		program program
		blind   bool // the workers tell no resources
		want    uint32
		classes []uint32
	}{
		{"compile with many threads", program{seconds: 40, parallel: 38}, false, 4, []uint32{1, 4}},
		{"one thread, one second", program{seconds: 1}, false, 1, []uint32{1, 4}},
		{"one thread, long", program{seconds: 300}, false, 1, []uint32{1, 4}},
		{"much memory", program{seconds: 3, memory: 2.5}, false, 4, []uint32{1, 4}},
		{"some memory", program{seconds: 3, memory: 3}, false, 4, []uint32{1, 2, 4, 8}},
		{"quick, many threads", program{seconds: 4, parallel: 3.9}, false, 8, []uint32{1, 2, 4, 8}},
		{"one thread, long, nothing told", program{seconds: 300}, true, 1, []uint32{1, 4}},
		{"many threads, nothing told", program{seconds: 40, parallel: 38}, true, 4, []uint32{1, 4}},
		{"much memory, nothing told", program{seconds: 3, memory: 2.5}, true, 4, []uint32{1, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i := range 3 {
				f := newFarm(t, Options{}, c.classes...)
				a := testAction(i)
				c.program.blind = c.blind
				f.times(30, a, c.program)
				f.restart()
				count := f.times(30, a, c.program)
				least := 30
				if c.blind {
					least = 22 // all that is known comes of trying
				}
				if count[c.want] < least {
					t.Errorf("after a while it runs on %v, want %d", count, c.want)
				}
			}
		})
	}
}

// TestOneRunIsEnough: a single run on the largest class shows where an action belongs.
func TestOneRunIsEnough(t *testing.T) {
	for name, c := range map[string]struct {
		program program
		want    uint32
	}{
		"one thread":    {program{seconds: 20, memory: 0.5}, 1},
		"many threads":  {program{seconds: 200, parallel: 199}, 8},
		"some threads":  {program{seconds: 20, parallel: 8}, 1},
		"three threads": {program{seconds: 60, parallel: 45}, 4},
		"much memory":   {program{seconds: 20, memory: 3}, 4},
	} {
		f := newFarm(t, Options{}, 8)
		a := testAction(1)
		f.run(a, c.program)
		f.classes = []uint32{1, 2, 4, 8}
		if on, choice, _ := f.run(a, c.program); on[0] != c.want || len(on) > 1 {
			t.Errorf("%s: runs on %d, want %d: %s", name, on, c.want, choice.Reason)
		}
	}
}

func TestOutOfMemoryRulesOut(t *testing.T) {
	f := newFarm(t, Options{}, 1, 2, 4, 8)
	a := testAction(1)
	l := Learner{options: &f.analyzer.options, action: a, choice: Choice{Class: 2}}
	v := l.Failed(Failure{Now: f.now, Outcome: OutOfMemory, Run: Run{Duration: time.Second}, Largest: 8})
	f.analyzer.Learn(t.Context(), v.Retry.Succeeded(Run{Duration: time.Second}))
	list, _ := f.analyzer.Analyze(t.Context(), a).Assess(f.conditions())
	for i, ruledOut := range []bool{true, true, false, false} {
		if got := list[i].RuledOut != ""; got != ruledOut || got != (list[i].Probability == 0) {
			t.Errorf("class %d: ruled out %q with a probability of %g", list[i].Size, list[i].RuledOut, list[i].Probability)
		}
	}
	for range 100 {
		if on, choice, _ := f.run(a, program{seconds: 1, memory: 0.1}); on[0] <= 2 && f.runs < 15 {
			t.Fatalf("run %d is on %d: %s", f.runs, on, choice.Reason)
		}
	}
	if on, _, _ := f.run(a, program{seconds: 1, memory: 0.1}); on[0] != 1 {
		t.Errorf("it is never tried again: %d", on)
	}
}

func TestAcrossClasses(t *testing.T) {
	for _, on := range []bool{false, true} {
		f := newFarm(t, Options{Plain: !on}, 1, 2, 4, 8)
		a := testAction(1)
		l := Learner{options: &f.analyzer.options, action: a, choice: Choice{Class: 4}}
		for range 4 {
			f.analyzer.Learn(t.Context(), &Lesson{action: a, runs: l.with(Failed, Run{})})
		}
		f.learn(a, 2, time.Second, time.Second)
		list, _ := f.analyzer.Analyze(t.Context(), a).Assess(f.conditions())
		want := []float64{1. / 2, 3. / 4, 1. / 6}
		if on {
			want = []float64{1. / 6, 3. / 8, 3. / 8}
		}
		for i, p := range want {
			if list[i].Probability != p {
				t.Errorf("across classes %t: class %d: %g, want %g", on, list[i].Size, list[i].Probability, p)
			}
		}
	}
}

func TestKinds(t *testing.T) {
	f := newFarm(t, Options{}, 1, 2, 4, 8)
	compile := func(n int) Action {
		a := testAction(n)
		a.Mnemonic, a.Platform = "CppCompile", "linux"
		return a
	}
	link := func(n int) Action {
		a := testAction(1000 + n)
		a.Mnemonic, a.Platform = "CppLink", "linux"
		return a
	}
	one, many := program{seconds: 3, memory: 0.2}, program{seconds: 80, parallel: 79, memory: 3}
	for i := range 10 {
		f.times(3, compile(i), one)
		f.times(3, link(i), many)
	}
	for i := range 20 {
		if on, choice, _ := f.run(compile(100+i), one); on[0] != 1 {
			t.Errorf("compile: %d: %s", on, choice.Reason)
		}
		if on, choice, _ := f.run(link(100+i), many); on[0] < 4 {
			t.Errorf("link: %d: %s", on, choice.Reason)
		}
	}
	other := compile(200)
	other.Platform = "windows"
	if list, _ := f.analyzer.Analyze(t.Context(), other).Assess(f.conditions()); list[0].Score != 0 {
		t.Errorf("another platform is alike: %+v", list[0])
	}
}

func TestQueues(t *testing.T) {
	f := newFarm(t, Options{}, 1, 4)
	settled := testAction(1)
	for range 32 {
		f.learn(settled, 1, 12*time.Second)
		f.learn(settled, 4, 10*time.Second)
	}
	wide := testAction(2)
	for range 32 {
		f.learn(wide, 1, 38*time.Second)
		f.learn(wide, 4, 10*time.Second)
	}
	for _, c := range []struct {
		name         string
		action       Action
		small, large time.Duration
		want         uint32
	}{
		{"fits, none waits", settled, 0, 0, 1},
		{"fits, long queue there", settled, 5 * time.Minute, 0, 4},
		{"fits, long queues", settled, 5 * time.Minute, 5 * time.Minute, 1},
		{"too wide, none waits", wide, 0, 0, 4},
		{"too wide, long queue at the large ones", wide, 0, 5 * time.Minute, 1},
	} {
		conditions := f.conditions()
		conditions.Classes[0].Wait, conditions.Classes[1].Wait = c.small, c.large
		if list, choice := f.analyzer.Analyze(t.Context(), c.action).Assess(conditions); choice.Class != c.want {
			t.Errorf("%s: class %d: %s; %+v", c.name, choice.Class, choice.Reason, list)
		}
	}
}

// TestAmdahl predicts from a run on some CPUs how long it takes on others.
func TestAmdahl(t *testing.T) {
	for _, p := range []program{
		{seconds: 10}, {seconds: 10, parallel: 5}, {seconds: 10, parallel: 9.9}, {seconds: 0.001, parallel: 0.001},
	} {
		for _, from := range []uint32{2, 4, 16} {
			seen, _ := p.on(from, time.Hour)
			w, ok := run{class: from, outcome: Succeeded, Run: seen}.work()
			if !ok {
				t.Fatalf("%+v on %d tells nothing", p, from)
			}
			for _, to := range []uint32{1, 2, 8} {
				want, _ := p.on(to, time.Hour)
				if got := w.on(float64(to)); math.Abs((got - want.Duration).Seconds()) > want.Duration.Seconds()/1000 {
					t.Errorf("%+v from %d to %d CPUs: %s, want %s", p, from, to, got, want.Duration)
				}
			}
		}
	}
	waits := run{class: 4, outcome: Succeeded, Run: Run{Duration: 10 * time.Second, CPU: time.Second}}
	if w, _ := waits.work(); w.on(1) != waits.Duration || w.on(8) != waits.Duration {
		t.Errorf("what waits most of the time takes %s and %s", w.on(1), w.on(8))
	}
	if w, _ := waits.work(); w.on(0.5) != 11*time.Second {
		t.Errorf("half a CPU: %s", w.on(0.5))
	}
	// Of 10 s on half a CPU 4 s are waiting; on a whole one 3 s of work are left.
	half := run{class: 2, outcome: Succeeded, Run: Run{Duration: 10 * time.Second, CPU: 3 * time.Second, CPUs: 0.5}}
	f := &forecast{options: &Options{}, share: -1}
	for class, want := range map[uint32]time.Duration{1: 16 * time.Second, 4: 7 * time.Second} {
		if got, ok := f.infer(half, class); !ok || got.Duration != want {
			t.Errorf("from half a CPU to class %d: %s, %t, want %s", class, got.Duration, ok, want)
		}
	}
	if got, ok := f.infer(half, 8); ok && !got.bound {
		t.Errorf("what two CPUs would do is not known, and still: %s", got.Duration)
	}
}

func TestFullMemoryTellsNothing(t *testing.T) {
	r := run{class: 8, Run: Run{MemoryLimitBytes: 8 << 30, PeakMemoryBytes: 5 << 30}}
	for class, want := range map[uint32]bool{1: true, 4: true, 5: false, 8: false} {
		if r.outgrows(class) != want {
			t.Errorf("5 GiB of 8 on class %d: %t", class, !want)
		}
	}
	r.PeakMemoryBytes = 8 << 30
	if r.outgrows(1) {
		t.Error("memory that is full of files says what was needed")
	}
}

func TestReasons(t *testing.T) {
	f := newFarm(t, Options{}, 4)
	_, choice, _ := f.run(testAction(1), program{seconds: 1})
	if choice.Reason != "the only class" {
		t.Error(choice.Reason)
	}
	f.classes = []uint32{1, 4}
	_, choice, _ = f.run(testAction(1), program{seconds: 1})
	if want := "least delay and cost by its own runs: 0.50 of the largest class's"; choice.Reason != want {
		t.Errorf("%q, want %q", choice.Reason, want)
	}
	if got := fmt.Sprint(choice.Expected); got != "1s" {
		t.Errorf("expected %s", got)
	}
}
