package fair

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// A farm is a tree with endless work in its leaves, and workers that are never idle.
type farm struct {
	tree *Tree
	now  time.Time
	age  uint64
	runs map[*Worker]*Item
	// paths tell what an item is for, started counts the starts for each.
	paths   map[*Item]string
	started map[string]int
}

func newFarm(o Options, workers int) *farm {
	f := &farm{
		tree: New(o), now: time.Unix(1e9, 0), runs: map[*Worker]*Item{},
		paths: map[*Item]string{}, started: map[string]int{},
	}
	for range workers {
		f.runs[&Worker{}] = nil
	}
	return f
}

// add queues n items for a path "a/b".
func (f *farm) add(path string, priority int32, n int) {
	for range n {
		f.age++
		it := &Item{}
		f.paths[it] = path
		f.tree.Attach(&Entry{}, it, strings.Split(path, "/"), Rank{Priority: priority, Age: f.age})
		f.tree.Enqueue(it, 0, false)
	}
}

// work ends a worker's item and starts the next one. It returns the path of the new item.
func (f *farm) work(s *Worker, cost int64) string {
	if it := f.runs[s]; it != nil {
		f.tree.Finish(it)
		f.tree.Detach(it.entries.first.owner)
	}
	it := f.tree.Next(s, f.now)
	f.runs[s] = it
	if it == nil {
		return ""
	}
	f.tree.Start(it, s, f.now, cost)
	f.started[f.paths[it]]++
	return f.paths[it]
}

// shares has every worker run items for a number of rounds, and returns the concurrent runs of each
// branch.
func (f *farm) shares(rounds int) string {
	for range rounds {
		for s := range f.runs {
			f.work(s, 1)
		}
	}
	running := map[string]int{}
	for _, it := range f.runs {
		running[f.paths[it]]++
	}
	return fmt.Sprint(running)
}

func TestShares(t *testing.T) {
	for _, test := range []struct {
		name    string
		levels  []Level
		workers int
		queue   map[string]int32
		want    string
	}{
		{"alike", make([]Level, 1), 9, map[string]int32{"a": 0, "b": 0, "c": 0}, "map[a:3 b:3 c:3]"},
		{"100 steps of priority are a factor of two", make([]Level, 1), 90, map[string]int32{"a": 0, "b": 100}, "map[a:60 b:30]"},
		{"200 steps are four", make([]Level, 1), 100, map[string]int32{"a": -200, "b": 0}, "map[a:80 b:20]"},
		{
			"weights",
			[]Level{{Weights: map[string]float64{"a": 3}}},
			80,
			map[string]int32{"a": 0, "b": 0},
			"map[a:60 b:20]",
		},
		{
			"each level by itself", make([]Level, 2), 80,
			map[string]int32{"a/x": 0, "b/x": 0, "b/y": 0, "b/z": 100},
			"map[a/x:40 b/x:16 b/y:16 b/z:8]",
		},
		{
			"a weight of little is not nothing",
			[]Level{{Weights: map[string]float64{"a": 1e-9}}},
			10,
			map[string]int32{"a": math.MaxInt32, "b": math.MinInt32},
			"map[a:1 b:9]",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFarm(Options{Levels: test.levels}, test.workers)
			for path, priority := range test.queue {
				f.add(path, priority, 2000)
			}
			if got := f.shares(15); got != test.want {
				t.Errorf("shares are %s, want %s", got, test.want)
			}
		})
	}
}

// TestTurns checks that branches take turns in proportion to their weights, whatever the
// priorities, if there is too little running work to have shares.
func TestTurns(t *testing.T) {
	f := newFarm(Options{Levels: []Level{{Weights: map[string]float64{"b": 0.5}}}}, 1)
	f.add("a", 0, 1000)
	f.add("b", 100, 1000)
	f.shares(300)
	if f.started["a"] != 200 || f.started["b"] != 100 {
		t.Errorf("started %v, want twice as many for a", f.started)
	}
	// One that comes late has earned nothing by waiting.
	f.add("c", 0, 1000)
	clear(f.started)
	f.shares(50)
	if f.started["c"] != 20 || f.started["a"] != 20 {
		t.Errorf("started %v after c came, want 20, 10, 20", f.started)
	}
}

// TestCosts sees that an item of cost 8 counts as eight of cost 1, in any kind.
func TestCosts(t *testing.T) {
	f := newFarm(Options{Levels: make([]Level, 1)}, 0)
	f.add("a", 0, 20)
	f.work(&Worker{}, 8)
	f.add("b", 0, 20)
	for range 8 {
		if got := f.work(&Worker{}, 1); got != "b" {
			t.Fatalf("started %s, want b", got)
		}
	}
	f.work(&Worker{}, 1) // 8 to 8, and b has had as much: a is older
	if f.started["a"] != 2 {
		t.Errorf("started %v", f.started)
	}
}

// TestJoined checks that an item with several entries starts once, at its best place, that all
// branches with an entry pay for it, and that none owns it.
func TestJoined(t *testing.T) {
	f := newFarm(Options{Levels: make([]Level, 2)}, 0)
	f.add("a/x", 0, 3)
	f.add("b/x", 0, 3)
	it := &Item{}
	f.paths[it] = "joined"
	var entries [3]Entry
	for i, path := range []string{"a/x", "a/y", "b/y"} {
		f.tree.Attach(&entries[i], it, strings.Split(path, "/"), Rank{Priority: []int32{500, 20, 300}[i], Age: 100})
	}
	f.tree.Enqueue(it, 0, false)
	worker := &Worker{}
	got := f.work(&Worker{}, 1) + " " + f.work(&Worker{}, 1) + " " + f.work(worker, 1)
	if got != "a/x b/x joined" {
		t.Errorf("started %s", got)
	}
	if worker.home != f.tree.root {
		t.Errorf("the worker belongs to %q", worker.home.key)
	}
	running := map[string]int64{}
	for v := range f.tree.Branches(0) {
		running[fmt.Sprint(v.Depth, v.Key)] += v.Running
	}
	if running["1a"] != 2 || running["1b"] != 2 || running["2x"] != 3 || running["2y"] != 2 {
		t.Errorf("running %v", running)
	}
	f.tree.Finish(it)
	for i := range entries {
		f.tree.Detach(&entries[i])
		f.tree.Detach(&entries[i]) // does no harm
	}
	if n := len(f.tree.root.children["a"].children); n != 1 {
		t.Errorf("%d branches are left below a, want x", n)
	}
}

// TestAdmit sees that branches that may not run are not looked at, and that one
// that has to goes first.
func TestAdmit(t *testing.T) {
	grades, asked := map[string]Grade{}, 0
	changes := &Changes{}
	o := Options{
		Levels:  make([]Level, 1),
		Admit:   func(_ uint32, key string) Grade { asked++; return grades[key] },
		Changes: changes,
	}
	f := newFarm(o, 0)
	for i := range 1000 {
		f.add(fmt.Sprint("held", i), 0, 1)
	}
	if got := f.work(&Worker{}, 1); got != "" {
		t.Fatalf("started %s", got)
	}
	grades["late"], grades["first"] = Share, First
	f.add("late", 0, 2)
	asked = 0
	if got := f.work(&Worker{}, 1); got != "late" || asked > 4 {
		t.Errorf("started %s and asked %d times", got, asked)
	}
	f.add("first", 1000, 2)
	if got := f.work(&Worker{}, 1) + f.work(&Worker{}, 1); got != "firstfirst" {
		t.Errorf("started %s", got)
	}
	grades["held7"] = First
	changes.Note("held7")
	changes.Note("unknown")
	if got := f.work(&Worker{}, 1); got != "held7" {
		t.Errorf("started %s", got)
	}
}

func BenchmarkNextStart(b *testing.B) {
	for _, n := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			f := newFarm(Options{Levels: make([]Level, 3)}, 10_000)
			for i := range n {
				f.add(fmt.Sprintf("%d/%d/%d", i%20, i%400, i%10_000), 0, 1)
			}
			var workers []*Worker
			for s := range f.runs {
				f.work(s, 1)
				workers = append(workers, s)
			}
			i := 0
			for b.Loop() {
				s := workers[i%len(workers)]
				it := f.runs[s]
				f.tree.Finish(it)
				f.tree.Enqueue(it, 0, false)
				next := f.tree.Next(s, f.now)
				f.tree.Start(next, s, f.now, 1)
				f.runs[s] = next
				i++
			}
		})
	}
}

// TestNextOf asks for the next item of one branch, whichever branch's turn it is.
func TestNextOf(t *testing.T) {
	grades := map[string]Grade{"a": First, "b": Share, "held": Wait}
	f := newFarm(Options{Levels: make([]Level, 2), Admit: func(_ uint32, key string) Grade { return grades[key] }}, 0)
	for _, path := range []string{"a/x", "b/x", "b/y", "held/x"} {
		f.add(path, 0, 2)
	}
	worker := &Worker{}
	for key, want := range map[string]string{"a": "a/x", "b": "b/x", "held": "", "unknown": ""} {
		if got := f.paths[f.tree.NextOf(worker, key, f.now)]; got != want {
			t.Errorf("of %q %q is next, want %q", key, got, want)
		}
	}
	if it := f.tree.NextOf(&Worker{Kind: 1}, "a", f.now); it != nil {
		t.Error("something is next in a kind in which nothing waits")
	}
	it := f.tree.NextOf(worker, "b", f.now)
	f.tree.Start(it, worker, f.now, 1)
	if got := f.paths[f.tree.NextOf(worker, "b", f.now)]; got != "b/y" {
		t.Errorf("%q is next after b/x has started", got)
	}
}

// TestTurnsDoNotEnd has branches take turns with tiny costs, long after others have taken turns
// with huge costs.
func TestTurnsDoNotEnd(t *testing.T) {
	f := newFarm(Options{Levels: make([]Level, 1)}, 0)
	f.add("slow", maxSteps, 20_000)
	var s Worker
	for range 20_000 {
		f.work(&s, 8)
	}
	f.add("a", -maxSteps, 20)
	f.add("b", -maxSteps, 20)
	for range 20 {
		f.work(&s, 1)
	}
	if f.started["a"] != 10 || f.started["b"] != 10 {
		t.Errorf("a and b have started %d and %d times", f.started["a"], f.started["b"])
	}
}
