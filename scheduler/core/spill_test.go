package core

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// never is for times that do not come in these tests.
const never = 10_000 * time.Hour

// A yard is a farm of some size classes in which all actions are in one branch, and the model of
// where they run: it has lists, and goes through all of them whenever anything happens.
type yard struct {
	t      *testing.T
	seed   uint64
	random *rand.Rand
	state  *State
	now    time.Time
	next   time.Time
	made   int
	joined int
	call   uint64
	calls  map[uint64]string
	// bays are by class, workers by name, in the model. ran is where State has started actions
	// since the last comparison; wants is where the model has.
	bays       map[uint32]*bay
	workers    map[string]*hand
	ran, wants map[string]uint32
	// given counts started actions, spilled those of them that started on a larger class than their
	// own.
	given, spilled int
}

// A bay is one size class.
type bay struct {
	class   uint32
	waiting []*job
	typical float64 // seconds, 0 before the first has ended
	begun   bool    // waiting actions go to larger classes, until their number has halved
}

type job struct {
	*request.Operation
	queued time.Time
}

// A hand is a worker.
type hand struct {
	class       uint32
	idle, leave bool
	runs        *job
	since       time.Time
}

func newYard(t *testing.T, seed uint64, classes ...uint32) *yard {
	y := &yard{
		t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 9)), now: epoch, calls: map[uint64]string{},
		bays: map[uint32]*bay{}, workers: map[string]*hand{}, ran: map[string]uint32{}, wants: map[string]uint32{},
		state: must(NewState(tuning.Config{
			Queues: []levels.QueueConfig{{}}, IdleHold: never, WorkerSlack: never, SyncInterval: never,
		})),
	}
	for _, class := range classes {
		y.bays[class] = &bay{class: class}
		y.join(class)
	}
	return y
}

// tell calls Step, and records the assigned actions.
func (y *yard) tell(e event.Event) {
	y.t.Helper()
	out := y.state.Step(y.now, e)
	for _, r := range out.Replies {
		if w := y.workers[y.calls[r.Call]]; r.Do == event.Execute {
			y.ran[r.Run.Name] = w.class
		}
	}
	y.next = out.NextTick
	if y.call%20 > 0 {
		return
	}
	if problem := y.state.Check(); problem != "" {
		y.t.Fatalf("seed %d: %s", y.seed, problem)
	}
}

func (y *yard) report(name string, r event.Report) {
	y.t.Helper()
	y.call++
	y.calls[y.call] = name
	r.Call, r.Worker, r.ID, r.SizeClass = y.call, name, map[string]string{"name": name}, y.workers[name].class
	y.tell(&r)
}

// join adds a worker.
func (y *yard) join(class uint32) {
	y.joined++
	name := fmt.Sprintf("w%d", y.joined)
	y.workers[name] = &hand{class: class, idle: true}
	y.report(name, event.Report{Doing: event.Idle})
}

func (y *yard) submit(class uint32, expected time.Duration) {
	y.made++
	name := fmt.Sprintf("op%d", y.made)
	op := &request.Operation{
		Name: name, Digest: digest.Of(digest.SHA256, []byte(name)), Action: &repb.Action{}, Expected: expected,
		Size: request.Size{Class: class, Expected: expected},
	}
	b := y.bays[class]
	b.waiting = append(b.waiting, &job{op, y.now})
	slices.SortStableFunc(b.waiting, func(a, b *job) int { return cmp.Compare(b.Expected, a.Expected) })
	y.tell(event.Submit{Operation: op})
}

// end ends a worker's action. The worker then asks for another one, or for none with leave.
func (y *yard) end(name string, leave bool) {
	w := y.workers[name]
	w.leave = w.leave || leave
	b, took := y.bays[w.class], y.now.Sub(w.since).Seconds()
	if b.typical == 0 {
		b.typical = took
	} else {
		b.typical += (took - b.typical) / 8
	}
	done := &repb.ExecuteResponse{Result: &repb.ActionResult{}}
	r := event.Report{Doing: event.Completed, Action: w.runs.Digest, Response: done, PreferIdle: w.leave}
	w.runs = nil
	if !w.leave && len(b.waiting) > 0 {
		y.give(w, b)
	}
	y.report(name, r)
	if !w.leave && w.runs == nil {
		y.serve()
		w.idle = true
		y.report(name, event.Report{Doing: event.Idle})
	}
}

// rest has a worker that runs something say that it wants nothing more after it.
func (y *yard) rest(name string) {
	w := y.workers[name]
	w.leave = true
	y.report(name, event.Report{Doing: event.Executing, Action: w.runs.Digest, PreferIdle: true})
}

// cancel removes a waiting action.
func (y *yard) cancel(b *bay) {
	if len(b.waiting) == 0 {
		return
	}
	i := y.random.IntN(len(b.waiting))
	name := b.waiting[i].Name
	b.waiting = slices.Delete(b.waiting, i, i+1)
	y.tell(event.Cancel{Name: name})
}

// give starts the first action of a bay on a worker.
func (y *yard) give(w *hand, b *bay) {
	w.runs, w.since, w.idle = b.waiting[0], y.now, false
	b.waiting = b.waiting[1:]
	y.wants[w.runs.Name] = w.class
}

// idleOf returns an idle worker of a class; serving counts those that take work.
func (y *yard) idleOf(class uint32) *hand {
	for _, w := range y.workers {
		if w.class == class && w.idle {
			return w
		}
	}
	return nil
}

func (y *yard) serving(class uint32) (n int) {
	for _, w := range y.workers {
		if w.class == class && !w.leave {
			n++
		}
	}
	return n
}

// mean is how many seconds one of those that wait takes.
func (y *yard) mean(b *bay) float64 {
	sum := 0.0
	for _, j := range b.waiting {
		sum += cmp.Or(j.Expected.Seconds(), b.typical, 10)
	}
	return sum / float64(len(b.waiting))
}

// larger returns an idle worker of the smallest larger class, and the number of turns that it is
// worth.
func (y *yard) larger(b *bay) (w *hand, turns float64) {
	for _, class := range slices.Sorted(maps.Keys(y.bays)) {
		if w := y.idleOf(class); class > b.class && w != nil {
			return w, float64(class)/float64(b.class) - 1
		}
	}
	return nil, 0
}

// serve gives waiting actions to idle workers: of their class, and then of larger classes while a
// worker there is worth it, first where it is worth most.
func (y *yard) serve() {
	for _, b := range y.bays {
		for w := y.idleOf(b.class); w != nil && len(b.waiting) > 0; w = y.idleOf(b.class) {
			y.give(w, b)
		}
	}
	for {
		var from *bay
		var to *hand
		most := 0.0
		for _, class := range slices.Sorted(maps.Keys(y.bays)) {
			b := y.bays[class]
			w, turns := y.larger(b)
			if len(b.waiting) == 0 {
				b.begun = false
			}
			if len(b.waiting) == 0 || w == nil {
				continue
			}
			each := float64(len(b.waiting)) / float64(y.serving(b.class))
			waited := y.now.Sub(b.waiting[0].queued).Seconds() / y.mean(b)
			limit := turns
			if b.begun {
				limit /= 2
			}
			b.begun = each > limit || waited >= limit*(1-1e-9)
			if much := max(each, waited) / turns; b.begun && much >= most {
				from, to, most = b, w, much
			}
		}
		if from == nil {
			return
		}
		y.give(to, from)
		y.spilled++
	}
}

// due returns when an action will have waited for too long.
func (y *yard) due() (at time.Time) {
	for _, b := range y.bays {
		w, turns := y.larger(b)
		if w == nil || len(b.waiting) == 0 {
			continue
		}
		limit := time.Duration(turns * y.mean(b) * float64(time.Second))
		if t := b.waiting[0].queued.Add(limit); at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at
}

// pass has time pass, with all that is due in it.
func (y *yard) pass(d time.Duration) {
	until := y.now.Add(d)
	for due := y.due(); !due.IsZero() && !due.After(until); due = y.due() {
		if off := y.next.Sub(due).Abs(); off > time.Microsecond {
			y.t.Fatalf("seed %d: State is to be told the time at %s, something is due at %s",
				y.seed, y.next.Sub(epoch), due.Sub(epoch))
		}
		y.now = y.next
		y.tell(event.Tick{})
		y.compare()
	}
	y.now = until
}

// compare sees that State and model have given the same actions to workers of the same classes.
func (y *yard) compare() {
	y.t.Helper()
	y.serve()
	if !maps.Equal(y.ran, y.wants) {
		for name, class := range y.wants {
			if y.ran[name] != class {
				y.t.Errorf("%s: class %d, want %d", name, y.ran[name], class)
			}
		}
		y.t.Fatalf("seed %d, at %s: %d actions were given to workers, want %d", y.seed,
			y.now.Sub(epoch), len(y.ran), len(y.wants))
	}
	y.given += len(y.ran)
	clear(y.ran)
	clear(y.wants)
	// Which of several workers of a class has one is State's own.
	for name, w := range y.workers {
		v := y.of(name)
		if w.runs == nil && v.Action == "" || w.runs != nil && v.Action == w.runs.Digest.String()[len("sha256/"):] {
			continue
		}
		y.adopt()
		return
	}
}

// of returns what State knows of a worker.
func (y *yard) of(name string) (v view.Position) {
	if w := y.state.workers.Get(name); w != nil {
		v = w.view()
	}
	return v
}

// adopt gives the model's workers of each class the actions of State's workers.
func (y *yard) adopt() {
	jobs := map[string]*hand{}
	for _, w := range y.workers {
		if w.runs != nil {
			jobs[request.KeyOf(w.runs.Digest).String()] = &hand{runs: w.runs, since: w.since}
		}
	}
	for name, w := range y.workers {
		v := y.of(name)
		w.runs = nil
		if has := jobs[v.Action]; has != nil {
			w.runs, w.since, w.idle = has.runs, has.since, false
		} else {
			w.idle = !w.leave
		}
	}
}

// TestHundredForOneSmallWorker: ten idle large workers take actions that a small one has not
// started yet, of which nothing is known.
func TestHundredForOneSmallWorker(t *testing.T) {
	y := newYard(t, 0, 1, 4)
	for range 9 {
		y.join(4)
	}
	for range 100 {
		y.submit(1, 0)
		y.compare()
	}
	for range 9 {
		y.pass(10 * time.Second)
		for _, name := range slices.Sorted(maps.Keys(y.workers)) {
			if y.workers[name].runs != nil {
				y.end(name, false)
			}
			y.compare()
		}
	}
	if n := y.state.View().Counts(); n.Queued > 1 || y.given < 99 ||
		y.state.View().Tally().Spilled != uint64(y.spilled) {
		t.Errorf("after 90 s %d of 100 actions have begun: %+v", y.given, n)
	}
}

// yardOf plays the history of a seed.
func yardOf(t *testing.T, seed uint64) *yard {
	t.Helper()
	y := newYard(t, seed, [][]uint32{{1, 4}, {1, 2, 8}, {2, 3, 5}, {1, 2, 4, 8}}[seed%4]...)
	classes := slices.Sorted(maps.Keys(y.bays))
	for range 300 {
		mean := 2 * time.Second
		if y.random.IntN(8) == 0 {
			mean = 20 * time.Second
		}
		y.pass(time.Duration(y.random.ExpFloat64() * float64(mean)))
		class := classes[0] // in some histories mostly: then larger workers are idle
		if y.random.IntN(5) == 0 || seed%5 < 2 {
			class = classes[y.random.IntN(len(classes))]
		}
		var busy []string
		for name, w := range y.workers {
			if w.runs != nil {
				busy = append(busy, name)
			}
		}
		slices.Sort(busy)
		switch what := y.random.IntN(14); {
		case what == 0 && y.joined < 20:
			y.join(class)
		case what == 1 && len(busy) > 0:
			name := busy[y.random.IntN(len(busy))]
			y.end(name, y.serving(y.workers[name].class) > 1)
		case what == 2 && len(busy) > 0 && y.serving(y.workers[busy[0]].class) > 1:
			y.rest(busy[0])
		case what == 3:
			y.cancel(y.bays[class])
		case what < 8 && len(busy) > 0:
			y.end(busy[y.random.IntN(len(busy))], false)
		default:
			for range 1 + y.random.IntN(4)*y.random.IntN(3) {
				y.submit(class, time.Duration(y.random.IntN(3))*5*time.Second)
				y.compare()
			}
		}
		y.compare()
	}
	return y
}

// FuzzSpills is TestSpillsAreAsTold with more seeds.
func FuzzSpills(f *testing.F) {
	f.Fuzz(func(t *testing.T, seed uint64) { yardOf(t, seed) })
}

// TestSpillsAreAsTold submits and removes actions of some classes, adds and removes workers, and
// compares where actions run with the model.
func TestSpillsAreAsTold(t *testing.T) {
	spilled, ran := 0, 0
	for seed := range uint64(20) { // each list of classes, with each habit
		y := yardOf(t, seed)
		spilled, ran = spilled+y.spilled, ran+y.given
	}
	if spilled < ran/50 || spilled > ran/2 {
		t.Errorf("%d of %d actions ran on larger classes", spilled, ran)
	}
}
