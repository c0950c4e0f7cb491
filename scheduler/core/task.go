package core

import (
	"cmp"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/preemption"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/sweep"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
)

// A task is one action that must run once. It is at exactly one location: with a worker, in a
// queue, or among the unmatched.
//
// In a queue it has the place of each of its operations: it is handed out when the first of them
// has its turn, so it has the best priority of those that wait.
//
// With a million tasks, memory decides how long decisions take. So a task has at most 512 bytes:
// the garbage collector scans objects up to that size together. Its times nevertheless have their
// monotonic clock: without it, waits would follow the wall clock when that is set, and a replay
// would differ.
type task struct {
	// spec is the first operation's. It is nil for an orphan: an action that a
	// worker runs and no client has asked for yet.
	spec   *request.Operation
	action request.Key
	// before and after are tasks of the same action; see flights.
	before, after *task
	// Link is its place in the line in which it waits.
	sweep.Link[*task]
	queued time.Time
	// operations share the task; only an orphan has none. alone is the one that most tasks have.
	operations sharers
	alone      operation
	// attempts counts the runs that began, preempted those that were stopped for others, and small
	// those on a size class that was too small.
	attempts, preempted, small int32
	// wanting counts its wanted operations.
	wanting int32
	// number counts the tasks, and begins again after the last one there is room for.
	number uint32
	// private: it began with a private operation, and is in inFlight.private.
	private bool
	// returned: a worker lost it, and it goes before others of its priority.
	returned bool
	// impatient: no worker came to the declared size class that it waited for, so it goes to a
	// class with workers.
	impatient bool
	// course is the fate of the size class that was chosen for it.
	course course
	// past are its earlier runs; nil: nothing is known of one.
	past *past

	// at is its location: *queue, unmatched or *run. It is nil only within an event.
	at location
	// started is when the present run began, or the last one.
	started time.Time
	// share is its state in quotas; nil outside of cohorts.
	share *preemption.Share

	// item is the task in the tree of pool, which is nil for an unmatched one.
	item fair.Item
	pool *pool

	// timer runs while the task is unmatched, queued and avoids workers, hedged and running, or an
	// orphan.
	timer timer.Timer
}

// A location is where a task is.
type location interface{ isLocation() }

// unmatched is the location of a task that no worker can serve, in dispatcher.unmatched.
type unmatched struct{}

// A run is the location of a task that a worker has. It is in that worker.
type run struct {
	worker *worker
	// race is its second run, while there are two.
	race *race
	// as is what the worker has reported, of an orphan; nil for others.
	as *request.Ran
	// resends counts the repetitions of an assignment that its worker did not confirm.
	resends int32
	// left is when the last client stopped waiting for it, by Clock.Awake; see lingering.
	left time.Duration
	// inherited: the worker had it before it was asked for here, with limits of a size class that
	// are not known.
	inherited bool
	// unwanted: it is in the unwanted runs of its queue.
	unwanted bool
}

// lingering is how long a run goes on, whoever waits, after its last client has stopped waiting for
// it: a client whose stream has broken needs a moment to come back, and would lose all that has run
// of its action.
const lingering = 5 * time.Second

// yields is when a run that no client waits for may be stopped for others, by Clock.Awake.
func (r *run) yields() time.Duration { return timer.After(r.left, lingering) }

func (*queue) isLocation()    {}
func (unmatched) isLocation() {}
func (*run) isLocation()      {}

// A past has the outcomes of a task's earlier runs.
type past struct {
	// because explains the course to users.
	because string
	// failed is the key of the program that could not run it, for no fault of the action; empty: none.
	// failure explains it to users.
	failed, failure string
	// avoids: the task waits for others, until a time of Clock.Awake.
	avoids bool
	until  time.Duration
}

// counted is how many of the runs count for Config.MaxAttempts.
func (t *task) counted() int { return int(t.attempts - t.preempted - t.small) }

// pastRuns returns past, made if need be.
func (t *task) pastRuns() *past {
	if t.past == nil {
		t.past = &past{}
	}
	return t.past
}

// failedOn returns the key of the program that could not run it; empty: none.
func (t *task) failedOn() string {
	if t.past == nil {
		return ""
	}
	return t.past.failed
}

// avoids reports whether there are workers that do not get a task, for now.
func (t *task) avoids() bool { return t.past != nil && t.past.avoids }

// avoided returns the key of the program of an item's task that does not get it, for now; empty: none.
func avoided(it *fair.Item) string {
	if t := it.Owner.(*task); t.avoids() {
		return t.past.failed
	}
	return ""
}

// avoidsProgram reports whether the workers of a program do not. p is read only if some do not: it may
// be in no cache.
func (t *task) avoidsProgram(p *program) bool { return t.avoids() && t.past.failed == p.key }

// run returns the run of a task; nil if no worker has it.
func (t *task) run() *run {
	r, _ := t.at.(*run)
	return r
}

// ran returns what its worker has; only an orphan may be of an unknown instance name.
func (t *task) ran() request.Ran {
	if t.spec == nil {
		return *t.run().as
	}
	return request.RanFor(t.spec.Instance, t.action)
}

// worker returns the worker of a task; nil if there is none.
func (t *task) worker() *worker {
	if r := t.run(); r != nil {
		return r.worker
	}
	return nil
}

// race returns the second run of a task; nil if there is one at most.
func (t *task) race() *race {
	if r := t.run(); r != nil {
		return r.race
	}
	return nil
}

// inherited reports whether the worker of a task had it before it was asked for here.
func (t *task) inherited() bool {
	r := t.run()
	return r != nil && r.inherited
}

// queue returns the queue in which a task waits; nil if there is none.
func (t *task) queue() *queue {
	q, _ := t.at.(*queue)
	return q
}

// waitsIn reports whether a task waits in a queue or, for nil, among the unmatched.
func (t *task) waitsIn(q *queue) bool {
	if q != nil {
		return t.queue() == q
	}
	_, none := t.at.(unmatched)
	return none
}

// byAge compares tasks by when they were asked for.
func byAge(t, u *task) int { return cmp.Compare(t.operations.first.age, u.operations.first.age) }

// begin assigns a task to a worker.
func (t *task) begin(w *worker, at time.Time) {
	r := &w.run // field by field: a copy of the whole is slow while the garbage collector marks
	r.worker, r.race, r.as, r.resends, r.left, r.inherited, r.unwanted = w, nil, nil, 0, 0, false, false
	t.at, t.started = &w.run, at
}

// pass has another worker have the run of a task.
func (t *task) pass(w *worker) {
	old := t.run()
	w.run = *old
	*old = run{}
	w.run.worker, w.run.unwanted, t.at = w, false, &w.run
}

// A course is the fate of the size class that was chosen for a task.
type course uint8

const (
	// asChosen: it runs there, for no longer than Size.Timeout.
	asChosen course = iota
	// hedged: when it takes longer than Size.Timeout there, it continues, and also starts on the
	// largest class.
	hedged
	// racing: it runs on both.
	racing
	// overtaken: only the second run is left.
	overtaken
	// outgrown: it failed on a smaller size class, and must now run on the largest.
	outgrown
)

// late reports whether a task has taken longer than Size.Timeout.
func (c course) late() bool { return c == racing || c == overtaken }

// largest reports whether a task must run on the largest class, whatever was chosen.
func (c course) largest() bool { return c == overtaken || c == outgrown }

// move has a task that neither waits nor runs belong to a pool; nil: to none.
func (t *task) move(p *pool) {
	if t.pool == p {
		return
	}
	for o := range t.operations.all() {
		t.detach(o)
	}
	t.pool = p
	for o := range t.operations.all() {
		t.attach(o)
	}
}

// attach gives an operation its place in the tree that its task is in, if any.
func (t *task) attach(o *operation) {
	p := t.pool
	if p == nil {
		return
	}
	p.keys = levels.AppendKeys(p.keys[:0], p.levels, o.spec)
	p.tree.Attach(&o.entry, &t.item, p.keys,
		fair.Rank{Priority: o.spec.Priority, Expected: o.spec.Expected, Age: o.age})
	if !o.wanted {
		p.tree.Park(&o.entry)
	}
}

// add has an operation share a task.
func (t *task) add(o *operation) {
	o.task = t
	t.operations.add(o)
	if o.wanted {
		t.wanting++
	}
}

// remove undoes it.
func (t *task) remove(o *operation) {
	t.operations.remove(o)
	if o.wanted {
		t.wanting--
	}
}

// wanted reports whether a client waits for a task, or may come back for it after a restart.
func (t *task) wanted() bool { return t.wanting > 0 || t.spec == nil }

// detach takes its place in the tree from an operation of a task.
func (t *task) detach(o *operation) {
	if t.pool != nil {
		t.pool.tree.Detach(&o.entry)
	}
}

// older reports whether a task was launched before another one.
func (t *task) older(than *task) bool { return int32(t.number-than.number) < 0 }

// unclaimed reports whether a task was taken over and no client has come back for it.
func (t *task) unclaimed() bool {
	for o := range t.operations.all() {
		if !o.restored || o.waiters > 0 {
			return false
		}
	}
	return true
}

// class is the size class of a task, 0 for the largest.
func (t *task) class() uint32 {
	if t.course.largest() {
		return 0
	}
	return t.spec.Size.Class
}

// explain explains the course.
func (t *task) explain(why string) { t.pastRuns().because = why }

// because returns the explanation, empty if there is nothing to explain.
func (t *task) because() string {
	if t.past == nil {
		return ""
	}
	return t.past.because
}

// cutShort reports whether the run of a task on a worker has less time than its action may take.
func (t *task) cutShort(w *worker) bool {
	size := t.spec.Size
	return size.Timeout > 0 && w == t.worker() && w.queue.size() == size.Class && t.course == asChosen
}

// expected is how long a task is thought to run on a size class, 0 if that is not known.
func (t *task) expected(class uint32) time.Duration {
	if size := t.spec.Size; size.Class == class {
		return size.Expected
	}
	return 0
}

// takenBy reports whether a queue is for a task: it is served, or will be if the task may wait.
func (t *task) takenBy(q *queue) bool {
	return (q.served() || !t.impatient && q.declared) && q.admits(t.spec.Instance)
}

// mispredicted reports whether a failed run on a worker says nothing of the action, because
// there is a larger one, or was when it was given less time than its own, and which the largest is.
func (t *task) mispredicted(w *worker, resp *repb.ExecuteResponse) (largest uint32, ok bool) {
	largest = w.queue.size()
	if q := w.pool.largest(t.takenBy); q != nil {
		largest = max(largest, q.size())
	}
	code := codes.Code(resp.GetStatus().GetCode())
	if code == codes.DeadlineExceeded && t.cutShort(w) {
		return largest, true
	}
	failed := code == codes.DeadlineExceeded || code == codes.OK && resp.GetResult().GetExitCode() != 0
	return largest, failed && (t.spec.Size.Class > 0 || t.inherited()) && w.queue.size() < largest
}

// A race is the second run of a task that takes too long where it is, on the largest size
// class. The first one goes on meanwhile.
type race struct {
	worker *worker
	since  time.Time
}

// rival is the idle worker that could run a task a second time; nil if none could. In cohorts none
// may: quotas count what an action runs on, not what it might.
func (t *task) rival() *worker {
	q := t.pool.largest((*queue).served)
	if t.pool.cohort != nil || q == nil || q.class <= t.worker().queue.class {
		return nil
	}
	if w := q.willing(t); w != nil && w.program.record.Standing() == trust.Trusted {
		return w
	}
	return nil
}

// mayHedge reports whether a task that a worker is given goes on after its Size.Timeout: there has
// to be somebody to start it again then.
func (t *task) mayHedge() bool {
	return t.spec.Size.Hedge && !t.course.largest() && t.worker().queue.size() == t.spec.Size.Class && t.rival() != nil
}

// recharge has the tree count a running task for the workers that it has now; the last one is w.
func (t *task) recharge(w *worker, now time.Time) {
	cost := t.worker().queue.cost()
	if second := t.race(); second != nil {
		cost += second.worker.queue.cost()
	}
	t.pool.tree.Finish(&t.item)
	t.pool.tree.Start(&t.item, &w.entry, now, cost)
}

// decides reports whether what a worker of a race reports ends it: a failure of the first run does
// not, nor does an end of the second that has nothing to do with the action.
func decides(t *task, w *worker, resp *repb.ExecuteResponse) bool {
	code := codes.Code(resp.GetStatus().GetCode())
	if w == t.race().worker {
		return code == codes.OK || code == codes.DeadlineExceeded
	}
	return code == codes.OK && resp.GetResult().GetExitCode() == 0
}

// quotaShare returns what quotas know of a task, known from now on.
func (t *task) quotaShare() *preemption.Share {
	if t.share == nil {
		t.share = preemption.NewShare(t, levels.Bounded(t.spec.Instance))
	}
	return t.share
}

// charge has quotas count a task that a worker has.
func (t *task) charge() {
	w := t.worker()
	if w.queue.quotas == nil || t.spec == nil {
		return
	}
	r := preemption.Run{
		Started: t.started, Preempted: int(t.preempted), Shielded: w.spared(),
		Priority: t.operations.first.spec.Priority,
	}
	for o := range t.operations.all() {
		r.Priority = min(r.Priority, o.spec.Priority)
	}
	w.queue.quotas.Charge(t.quotaShare(), r)
}
