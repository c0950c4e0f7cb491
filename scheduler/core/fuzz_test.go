package core

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// FuzzState feeds any sequence of events to a State and checks after each that
// nothing is lost or in two places, that each call is answered once, and in the
// end that everything ends.
func FuzzState(f *testing.F) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	r := rand.New(rand.NewPCG(671, 77)) // what could move at once waited behind what could not
	b := make([]byte, 3000)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	b[0], b[3] = 1, 2
	f.Add(b)
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 3000 {
			return
		}
		first, second := fuzzHistory(t, script), fuzzHistory(t, script)
		if first != second {
			t.Error("the same events gave different answers")
		}
	})
}

// TestRandomHistories runs longer histories than the fuzzer starts with.
func TestRandomHistories(t *testing.T) {
	waits, full, spilled, moved, preempted := 0, 0, uint64(0), uint64(0), uint64(0)
	seeds := []uint64{6081, 7677, 15911, 32504, 75674, 80205, 82382, 83179} // those of a hundred thousand that found anything
	for seed := range uint64(60) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 2))
		b := make([]byte, 3000)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f := newFuzzer(t, b)
		f.tellAll()
		tally := f.state.View().Tally()
		waits, spilled, moved = waits+f.spills, spilled+tally.Spilled, moved+tally.Moved
		full += f.full
		for _, c := range f.state.dispatch.pools.cohorts {
			preempted += c.Preemptions()
		}
	}
	if full < 12 || preempted < 1 {
		t.Errorf("instances used all of their maximum %d times, and %d actions were stopped for others", full, preempted)
	}
	if waits < 3 || spilled < 3 || moved < 2 {
		t.Errorf("actions waited beside idle larger workers %d times, went there %d times, and to other pools %d times", waits, spilled, moved)
	}
}

// fuzzer turns bytes into events.
type fuzzer struct {
	*history
	script []byte
	// calm: workers stay as they are, and nobody drains, kills or restores anything, so that more runs
	// and quotas matter.
	calm bool
	// steep: workers differ in their size classes only, and most actions are for the smallest.
	steep bool
	// plain is the platform of most workers, which are in a cohort if there are quotas.
	plain string
	at    time.Duration
	ops   int
	log   strings.Builder
	// waiting are the calls that have no answer yet; clients the number of those
	// who wait for each operation.
	waiting map[uint64]bool
	clients map[string]int
	// restored were known of an earlier scheduler, and nobody has come back for them yet.
	restored  map[string]bool
	announced announcements
	// quotas are those in force. full counts the actions that made an instance use all of its maximum.
	quotas map[string]quota.Quota
	full   int
	// former is the quota that the present event replaces: what was due before that is given by it.
	former quota.Quota
	// spills counts how often something waited while a larger worker was idle.
	spills int
	// zero is when Clock.Awake was 0, at first.
	zero time.Time
}

func (f *fuzzer) pick(choices ...string) string {
	if len(f.script) == 0 {
		return choices[0]
	}
	b := int(f.script[0])
	f.script = f.script[1:]
	return choices[b%len(choices)]
}

func fuzzHistory(t *testing.T, script []byte) string {
	f := newFuzzer(t, script)
	f.tellAll()
	return f.log.String()
}

// tellAll tells the whole history.
func (f *fuzzer) tellAll() {
	for len(f.script) > 0 {
		f.step()
	}
	f.finish()
}

func newFuzzer(t *testing.T, script []byte) *fuzzer {
	cfg := tuning.Config{
		MaxCompleted: 6, MaxQueued: 8, MaxPerQueue: 5, MaxPerClient: 7, MaxAttempts: 2,
		SuspendAfter: 2, Settle: 4 * time.Second,
	}
	cfg.Queues = []levels.QueueConfig{
		{Platform: map[string]string{"OS": "x"}, Levels: nil},
		{Levels: []levels.Level{
			{Key: levels.KeyUser, Stickiness: 8 * time.Second, Weights: map[string]float64{"u1": 3}},
			{Key: levels.KeyToolInvocation, Stickiness: 3 * time.Second},
		}},
	}
	cfg.Sizes = []tuning.Sizes{{Classes: []uint32{1, 3}, Patience: 45 * time.Second}}
	cfg.Quotas = quota.Config{
		Labels: []quota.Label{
			{Name: "plain", Properties: map[string]string{"pool": "c"}},
			{Name: "x", Properties: map[string]string{"OS": "x"}},
			{Name: "machine", Properties: map[string]string{"OSFamily": "linux"}},
		},
		Cohorts: []quota.Cohort{
			{Name: "c", Labels: []string{"plain", "x"}},
			{Name: "machines", Labels: []string{"plain", "x", "machine"}}, // of workers that say more
		},
	}
	plain := "platform=pool=c"
	cfg.Sizes[0].Platform = map[string]string{"pool": "c"}
	if f := len(script); f > 0 && script[0]%3 == 0 {
		cfg.Quotas, plain, cfg.Sizes[0].Platform = quota.Config{}, "platform=", nil
	}
	if f := len(script); f > 1 && script[1]%2 == 0 {
		cfg.ResultHold = 2 * time.Second
	}
	if f := len(script); f > 2 {
		// So little that what an event begins is often left to those that follow.
		cfg.StepEffort = []int{0, 0, 1, 40}[script[2]%4]
	}
	cfg.PreemptionDelay, cfg.PreemptionGrace = 5*time.Second, 3*time.Second
	state, err := NewState(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &fuzzer{
		history: &history{
			t: t, cfg: cfg, state: state, calls: map[uint64]string{},
			actions: map[string]string{}, lastOf: map[string]uint64{},
		},
		script: script, plain: plain, calm: len(script) > 3 && script[3]%2 == 0,
		steep:   len(script) > 4 && script[4]%8 > 5,
		waiting: map[uint64]bool{},
		clients: map[string]int{}, restored: map[string]bool{}, announced: announcements{},
		quotas: map[string]quota.Quota{},
	}
}

func (f *fuzzer) step() {
	delay, _ := time.ParseDuration(f.pick("0s", "1s", "1s", "3s", "7s", "29s", "70s", "-5s"))
	if f.calm && delay > 10*time.Second {
		delay /= 20 // workers are not lost
	}
	f.at += delay
	now := epoch.Add(f.at)
	worker := f.pick("w1", "w2", "w3", "w4")
	op := fmt.Sprintf("op%s", f.pick("1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12"))
	what := f.pick("submit", "submit", "sync", "sync", "sync", "sync", "sync", "sync", "sync", "sync", "hangup",
		"attach", "detach", "cancel", "tick", "disconnect", "drain", "undrain", "kill", "quota", "restore", "settle")
	if f.calm && slices.Contains([]string{"disconnect", "drain", "kill", "restore"}, what) {
		what = "sync"
	}
	switch what {
	case "restore":
		w := f.report([]string{
			worker, "idle", "of=h1", f.pick(f.plain, "platform=OS=x"),
			f.pick("prefix=", "prefix=i"), f.pick("class=1", "class=2"),
		})
		one := f.operation([]string{
			op, f.pick("a", "b"), f.pick("platform=", "platform=OS=x"),
			f.pick("instance=i", "instance=i/j", "private"),
		})
		if f.state.operations.byName[op] == nil {
			f.clients[op], f.restored[op] = 0, true
		}
		f.tell(now, event.Restore{Held: event.Held{
			Operation: one, Queued: now, Started: now, Attempts: 1,
			Worker: w.Worker, ID: w.ID, Prefix: w.Prefix, WorkerPlatform: w.Platform, SizeClass: w.SizeClass,
		}})
	case "quota":
		k := quota.Key{Cohort: "c", Instance: f.pick("", "i", "i/j")}
		q := quota.Quota{Min: int64(len(f.pick("", "1", "22"))), Max: int64(len(f.pick("", "22", "333")))}
		before := f.quotas[k.Instance]
		f.quotas[k.Instance], f.former = q, before
		if f.tell(now, PutQuota{
			Record:  quota.Record{Key: k, Quota: q},
			Preempt: f.pick("leave", "preempt") == "preempt",
		}).Err == nil {
			break
		}
		delete(f.quotas, k.Instance)
		if f.tell(now, DeleteQuota{Key: k}).Err != nil {
			f.quotas[k.Instance] = before
		}
	case "kill":
		f.tell(now, Kill{Names: []string{op, "op1"}, Reason: "test"})
	case "disconnect":
		f.tell(now, event.Disconnect{Connection: f.number(f.pick("1", "2", "3"))})
	case "drain":
		drained := f.pattern(f.pick("position=w1", "position=w?", "position=w2"))
		if err := f.tell(now, Drain{Record: drain.Record{Pattern: drained}}).Err; err != nil {
			f.t.Fatal(err)
		}
	case "undrain":
		f.tell(now, Undrain{Pattern: f.pattern(f.pick("position=w?", "position=w?",
			"position=w1", "position=w2"))})
	case "submit":
		f.ops++
		args := strings.Fields(fmt.Sprintf("op%d %s %s %s %s", f.ops%40,
			f.pick("a", "b", "c", "d"), f.pick("platform=", "platform=", "platform=", "platform=",
				"platform=OS=x", "platform=OS=x,container-image=i",
				"platform=OSFamily=LINUX", "platform=OS=x,gpu=1", "platform=Os=x"),
			f.pick("instance=", "instance=i", "instance=i/j", "private"),
			f.pick("client=", "client=c1", "client=c2")))
		args = append(args, f.pick("user=", "user=u1", "user=u2"),
			f.pick("invocation=", "invocation=i1", "invocation=i2"),
			f.pick("priority=0", "priority=0", "priority=100", "priority=-2147483648"),
			f.pick("expected=0s", "expected=9s"),
			f.size())
		clients, restored := f.clients[args[0]], f.restored[args[0]]
		f.clients[args[0]], f.restored[args[0]] = 1, false
		if f.tell(now, event.Submit{Operation: f.operation(args)}).Err != nil {
			f.clients[args[0]], f.restored[args[0]] = clients, restored
		}
	case "sync":
		f.sync(now, worker)
	case "hangup":
		f.tell(now, event.Hangup{Worker: worker, Call: f.lastOf[worker]})
	case "attach":
		restored := f.restored[op]
		f.clients[op]++
		f.restored[op] = false
		if f.tell(now, event.Attach{Name: op}).Err != nil {
			f.clients[op]--
			f.restored[op] = restored
		}
	case "detach":
		if f.clients[op] > 0 {
			f.clients[op]--
			f.tell(now, event.Detach{Name: op, Now: f.pick("later", "later", "now") == "now"})
		}
	case "cancel":
		f.tell(now, event.Cancel{Name: op})
	case "tick":
		f.tell(now, event.Tick{})
	case "settle":
		f.tell(now, event.Settle{})
	}
}

// size is where an action starts.
func (f *fuzzer) size() string {
	one := f.pick("size=0", "size=1,5s", "size=2,5s", "size=1,5s,3s,hedge", "size=1,5s,hedge", "size=3,5s")
	if f.steep && (one == "size=0" || one == "size=3,5s") {
		return "size=1,5s"
	}
	return one
}

// sync reports what the worker runs by State's own account, mostly.
func (f *fuzzer) sync(now time.Time, worker string) {
	words := []string{worker}
	action := f.pick("a", "b", "c", "d")
	w := f.state.workers.Get(worker)
	if w != nil && w.task != nil && (f.pick("true", "true", "true", "lie") == "true" || f.calm) {
		action = f.actions[w.task.action.String()]
	}
	doing := f.pick("idle", "idle", "executing", "executing", "completed", "completed")
	if f.calm && w != nil && w.task != nil && doing == "idle" {
		doing = "executing"
	}
	switch doing {
	case "idle":
		words = append(words, "idle")
	case "executing":
		words = append(words, "executing", action)
		if f.pick("running", "fetching") == "running" {
			words = append(words, "running")
		}
		if f.pick("running", "running", "uploading") == "uploading" {
			words = append(words, "uploading")
		}
	case "completed":
		words = append(words, "completed", action, f.pick("exit=0", "exit=1", "error=x"))
		if w != nil && w.task != nil && w.task.spec != nil && words[3] == "exit=0" {
			words = append(words, "timed", "instance="+w.task.spec.Instance)
		}
	}
	words = append(words, f.pick(f.plain, f.plain, f.plain, f.plain, f.plain, f.plain,
		"platform=OS=x", "platform=OS=x,gpu=1", "platform=OS=x,container-image=i"))
	if given := f.pick("", "", "", "", "", "", "", "", "", "", "implied=OSFamily=linux",
		"implied=OSFamily=plan9", "require=gpu=1"); given != "" {
		words = append(words, given)
	}
	words = append(words, f.pick("prefix=", "prefix=", "prefix=", "prefix=i"))
	words = append(words, f.pick("class=1", "class=1", "class=2", "class=3"))
	if f.steep {
		class := map[string]string{"w1": "class=1", "w2": "class=2", "w3": "class=1", "w4": "class=3"}[worker]
		words = append(words[:len(words)-3], f.plain, "prefix=", class)
	}
	words = append(words, "of="+map[string]string{"w1": "h1", "w2": "h1", "w3": "h2", "w4": "h3"}[worker])
	words = append(words, "over="+f.pick("0", "1", "2", "3"))
	if boot := f.pick("", "b1", "b1", "b1", "b2"); !f.calm {
		words = append(words, "boot="+boot)
	}
	if f.pick("stay", "stay", "stay", "drain") == "drain" && !f.calm {
		words = append(words, "drain")
	}
	if w != nil && (f.pick("stay", "stay", "move") == "stay" || f.calm) {
		words = append(words, "prefix="+w.pool.Prefix, fmt.Sprintf("class=%d", w.queue.class))
	}
	r := f.report(words)
	if w != nil {
		r.Platform = w.pool.Platform
	}
	f.waiting[r.Call] = true
	f.tell(now, r)
}

// tell is step, and checks the answer and the state after it.
func (f *fuzzer) tell(now time.Time, e event.Event) event.Out {
	f.t.Helper()
	known, behind := maps.Collect(f.state.workers.All()), f.state.reviews.isBehind()
	out := f.history.step(now, e)
	if f.zero.IsZero() {
		f.zero = f.state.When(0)
	}
	f.announced.hear(e, out, func(w string) bool { return known[w] != nil })
	f.log.WriteString(f.out.String())
	f.out.Reset()
	if r, ok := e.(*event.Report); ok && out.Err != nil {
		delete(f.waiting, r.Call)
	}
	if hangup, ok := e.(event.Hangup); ok &&
		!slices.ContainsFunc(out.Replies, func(r event.Reply) bool { return r.Call == hangup.Call }) {
		delete(f.waiting, hangup.Call) // else its time came before
	}
	for _, r := range out.Replies {
		if !f.waiting[r.Call] {
			f.t.Fatalf("call %d of %s is answered twice, or after its hangup", r.Call, f.calls[r.Call])
		}
		if r.Do == event.Execute && !f.somebodyWaits(e, f.state.workers.Get(f.calls[r.Call]), r.Run) {
			f.t.Fatalf("%s is given %s, which nobody waits for\n%s", f.calls[r.Call], r.Run.Name, f.log.String())
		}
		if r.Do == event.Execute {
			f.checkMaximum(e, f.state.workers.Get(f.calls[r.Call]), r.Run)
		}
		delete(f.waiting, r.Call)
	}
	for call := range f.waiting {
		w := f.state.workers.Get(f.calls[call])
		if w == nil || !w.isHeld() || w.call != call {
			f.t.Fatalf("call %d of %s will never be answered", call, f.calls[call])
		}
	}
	for _, st := range out.Notices {
		if st.Done() != (st.Response != nil) {
			f.t.Fatalf("%s: done %t, response %v", st.Name, st.Done(), st.Response)
		}
		if st.Stage == repb.ExecutionStage_EXECUTING && st.Worker == "" {
			f.t.Fatalf("%s executes nowhere", st.Name)
		}
	}
	if problem := f.state.Check(); problem != "" {
		f.t.Fatalf("%s\n%s", problem, f.log.String())
	}
	if problem := f.announced.check(f.state, e, out.Err, behind); problem != "" {
		f.t.Fatalf("%s\n%s", problem, f.log.String())
	}
	if problem := f.announced.checkMoves(f.state); problem != "" && !f.state.isBehind() {
		f.t.Fatalf("%s\n%s", problem, f.log.String())
	}
	for p := range f.state.dispatch.pools.All() {
		for _, q := range p.queues {
			if f.state.isBehind() {
				break
			}
			f.checkSpills(q)
		}
	}
	return out
}

// A way is one for a task to go to an idle worker of another queue, and for how many turns it waits
// for its own instead.
type way struct {
	task  *task
	class uint32
	turns float64
}

// ends is when the task has waited for so long, if each of those that wait takes as long as that.
func (x way) ends(each time.Duration) time.Time {
	return x.task.queued.Add(time.Duration(x.turns * float64(each)))
}

// ways are those for the tasks of a queue, by what the workers and tasks say themselves: to larger
// classes of the pool, and to other pools.
func (f *fuzzer) ways(q *queue) (up, beside []way) {
	for _, t := range q.tasks() {
		of := levels.Bounded(t.spec.Instance)
		if c := q.pool.cohort; !t.wanted() || c != nil && c.Grade(q.class, of) == fair.Wait {
			continue
		}
		for _, w := range f.state.workers.All() {
			to := w.queue
			if c := to.pool.cohort; !w.entry.Waits() || t.avoidsProgram(w.program) || c != nil && c.Grade(to.class, of) == fair.Wait {
				continue
			}
			x := way{t, to.class, float64(to.size())/float64(q.size()) - 1}
			if to.pool == q.pool && to.class > q.class {
				up = append(up, x)
			} else if to.pool != q.pool && to.pool.Prefix == q.pool.Prefix && to.size() >= q.size() && q.mayMove(t, to) {
				strange := math.Exp2(float64(to.pool.Stranger(q.pool.Offer, t.spec.Platform)))
				x.turns = max((x.turns+1)*strange, 1) - 1
				beside = append(beside, x)
			}
		}
	}
	return up, beside
}

// checkSpills sees that nothing waits in a queue for more turns than are worth an idle worker of a
// larger class, and that State looks again by when something will have waited for too long: earlier
// if a cheaper worker was idle, later by what the clock has lost, as time leaps.
func (f *fuzzer) checkSpills(q *queue) {
	up, beside := f.ways(q)
	if len(up) == 0 {
		return
	}
	least := slices.MinFunc(up, func(a, b way) int { return cmp.Compare(a.class, b.class) })
	up = slices.DeleteFunc(up, func(x way) bool { return x.class > least.class })
	serve, waiting, sum := 0, 0, time.Duration(0)
	for _, w := range f.state.workers.All() {
		if w.queue == q && w.takes == Serving {
			serve++
		}
	}
	for _, t := range q.tasks() {
		if t.wanted() {
			waiting++
			sum += cmp.Or(t.expected(q.size()), q.load.Typical, 10*time.Second)
		}
	}
	each := max(sum/time.Duration(waiting), time.Millisecond)
	ahead := float64(waiting) / float64(max(serve, 1))
	if serve == 0 {
		ahead += q.pool.startup.Seconds() / each.Seconds()
	}
	if ahead > least.turns*(1+1e-9) || q.overflow.open {
		f.t.Fatalf("%d actions wait for %d workers of class %d while one of class %d is idle; open %t\n%s",
			waiting, serve, q.class, least.class, q.overflow.open, f.log.String())
	}
	last := slices.MaxFunc(append(up, beside...), func(a, b way) int { return a.ends(each).Compare(b.ends(each)) }).ends(each)
	when, lost := f.state.Timers.When(&q.overflow.timer), f.state.When(0).Sub(f.zero)
	if !q.overflow.timer.IsSet() || when.After(last.Add(lost+time.Microsecond)) {
		f.t.Fatalf("%d actions wait for class %d while a worker of class %d is idle; State looks again at %s, want %s at last\n%s",
			waiting, q.class, least.class, when.Sub(epoch), last.Sub(epoch), f.log.String())
	}
	f.spills++
}

// checkMaximum sees that an action that a worker has been given now does not bring its instance above
// its maximum, by what all workers have. What a worker has reported after that, or the index has shown
// of it, in the same event, it had already.
func (f *fuzzer) checkMaximum(e event.Event, given *worker, what *request.Operation) {
	if given == nil || given.task == nil || given.task.spec != what || given.pool.cohort == nil ||
		given.pool.cohort.Name != "c" || given.task.worker() != given || given.task.run().resends > 0 {
		return
	}
	used, most, former := int64(0), f.quotas[what.Instance].Max, f.quotas[what.Instance].Max
	if put, ok := e.(PutQuota); ok && put.Record.Key.Instance == what.Instance {
		former = f.former.Max
	}
	if most == 0 || former == 0 {
		return // there is none, or was none
	}
	most = max(most, former)
	report, _ := e.(*event.Report)
	restore, _ := e.(event.Restore)
	for _, w := range f.state.workers.All() {
		if w.Key == restore.Worker && w != given {
			continue
		}
		if report != nil && w.Key == report.Worker && w != given && w.task != nil && w.task.inherited() {
			continue
		}
		if t := w.task; t != nil && t.spec != nil && t.worker() == w && w.pool.cohort == given.pool.cohort && t.spec.Instance == what.Instance {
			used += max(int64(w.queue.class), 1)
		}
	}
	if used > most {
		f.t.Fatalf("with %s instance %q uses %d, its maximum is %d\n%s", what.Name, what.Instance, used, most, f.log.String())
	}
	if used == most {
		f.full++
	}
}

// somebodyWaits reports whether a client waits for what a worker is given, as far as the fuzzer has
// made clients come and go, or one may after a restart. What was due before a client goes may still
// have been for it.
func (f *fuzzer) somebodyWaits(e event.Event, w *worker, given *request.Operation) bool {
	if w == nil || w.task == nil || w.task.spec != given {
		return true // what was due gave it, and the event took it back
	}
	goes, _ := e.(event.Detach)
	for o := range w.task.operations.all() {
		if f.clients[o.spec.Name] > 0 || f.restored[o.spec.Name] || o.spec.Name == goes.Name {
			return true
		}
	}
	return false
}

// finish lets time pass while nobody calls: everything has to end.
func (f *fuzzer) finish() {
	for range 10_000 {
		if f.next.IsZero() {
			break
		}
		f.tell(f.next, event.Tick{})
	}
	s := f.state
	for name, o := range s.operations.byName {
		f.t.Errorf("operation %s never ends (done: %t)", name, o.done())
	}
	for _, c := range s.dispatch.pools.cohorts {
		if n := undeclared(slices.Values(c.pools)); n > 0 || len(c.Used()) > 0 {
			f.t.Errorf("cohort %s has %d pools and uses %v", c.Name, n, c.Used())
		}
	}
	left := map[string]int{
		"workers":     s.workers.Len(),
		"pools":       undeclared(s.dispatch.pools.All()),
		"tasks":       len(s.inFlight.shared) + len(s.inFlight.private),
		"timers":      s.Timers.Len(),
		"operations":  s.operations.completed.Len(),
		"results":     s.orphans.Actions(),
		"clients":     len(s.operations.clients),
		"connections": s.workers.Connections(),
	}
	for what, n := range left {
		if n > 0 {
			f.t.Errorf("%d %s are left", n, what)
		}
	}
}

// undeclared counts the pools without declared size classes: the others stay.
func undeclared(pools iter.Seq[*pool]) (n int) {
	for p := range pools {
		if !p.hasDeclared() {
			n++
		}
	}
	return n
}
