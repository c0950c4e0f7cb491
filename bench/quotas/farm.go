package quotas

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// A quotaShape is a farm in virtual time whose instances have quotas.
type quotaShape struct {
	cohorts int
	// workers and instances are the numbers in each cohort.
	workers, instances int
	// Half of the actions take less than typical plus a second; one in a hundred takes 16 times
	// that.
	typical, length time.Duration
	// pace is how long the demand of an instance stays the same. An instance is idle for half of
	// that, on average.
	pace time.Duration
	// delay, grace and atMost are settings of preemption. A worker needs the time stop to end a
	// run.
	delay, grace, stop time.Duration
	atMost             int
	// greedy: the first instance of each cohort has no quota, and always wants more workers than
	// there are.
	greedy bool
	// upload is the time to upload the outputs of an action.
	upload time.Duration
	seed   uint64
}

// A quotaFarm is a State with workers that call when they must, and clients with varying demand. It
// keeps its own account of the slots of each instance.
type quotaFarm struct {
	quotaShape
	state      *core.State
	now, began time.Time
	tick       time.Time
	random     *rand.Rand
	events     swings
	order      uint64
	callers    map[uint64]*quotaWorker
	calls      uint64
	operations map[string]*quotaOperation
	made       int
	cohortList []*quotaCohort

	// done is the work of completed runs, lost the work of stopped runs, in seconds.
	done, lost float64
	stopped    int
	// offered is the capacity of workers while an operation that was allowed to run waited; used is
	// the part that they used. Both are in worker seconds.
	offered, used float64
}

type quotaCohort struct {
	name      string
	platform  request.Platform
	workers   []*quotaWorker
	instances []*quotaInstance
	// busy counts workers; ready counts instances with a waiting operation that is allowed to run.
	busy, ready int
}

type quotaInstance struct {
	name   string
	cohort *quotaCohort
	quota  quota.Quota
	demand int
	used   int64
	// waiting is sorted by time, the longest wait first.
	waiting []*quotaOperation
	ready   bool
	// below is the time since when the instance has been below its minimum with a waiting
	// operation; zero if it is not.
	below    time.Time
	episodes []float64 // seconds
}

type quotaOperation struct {
	action   digest.Digest
	instance *quotaInstance
	duration time.Duration
	// since is the start of its wait or of its run; stopped counts its preemptions.
	since   time.Time
	stopped int
}

type quotaWorker struct {
	key    string
	cohort *quotaCohort
	op     *quotaOperation
	end    time.Time
	// next is the number of its next event; events with other numbers are obsolete.
	next uint64
}

// A swing is an event: a worker calls, or the demand of an instance changes.
type swing struct {
	at       time.Time
	order    uint64
	worker   *quotaWorker
	instance *quotaInstance
}

type swings []swing

func (s swings) Len() int { return len(s) }
func (s swings) Less(i, j int) bool {
	if c := s[i].at.Compare(s[j].at); c != 0 {
		return c < 0
	}
	return s[i].order < s[j].order
}
func (s swings) Swap(i, j int) { s[i], s[j] = s[j], s[i] }
func (s *swings) Push(x any)   { *s = append(*s, x.(swing)) }
func (s *swings) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	*s = (*s)[:last]
	return x
}

// newQuotaFarm returns a farm that guarantees four fifths of the workers to instances, in unequal
// parts. Every third instance has a maximum.
func newQuotaFarm(shape quotaShape) (*quotaFarm, error) {
	config := tuning.Config{
		MaxCompleted: 1000, PreemptionDelay: shape.delay, PreemptionGrace: shape.grace, MaxPreemptions: shape.atMost,
	}
	f := &quotaFarm{
		quotaShape: shape, now: time.Unix(1_800_000_000, 0), random: rand.New(rand.NewPCG(shape.seed, 8)),
		callers: map[uint64]*quotaWorker{}, operations: map[string]*quotaOperation{},
	}
	f.began = f.now
	for i := range shape.cohorts {
		name := fmt.Sprintf("cohort%d", i)
		config.Quotas.Labels = append(config.Quotas.Labels, quota.Label{Name: name, Properties: map[string]string{"pool": name}})
		config.Quotas.Cohorts = append(config.Quotas.Cohorts, quota.Cohort{Name: name, Labels: []string{name}, Unit: quota.Slots})
		f.cohortList = append(f.cohortList, &quotaCohort{name: name, platform: request.NewPlatform(&repb.Platform{
			Properties: []*repb.Platform_Property{{Name: "pool", Value: name}},
		})})
	}
	var err error
	if f.state, err = core.NewState(config); err != nil {
		return nil, err
	}
	for _, c := range f.cohortList {
		if err := f.fill(c); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// fill gives a cohort its workers and instances.
func (f *quotaFarm) fill(c *quotaCohort) error {
	for i := range f.workers {
		w := &quotaWorker{key: names.WorkerKey("", map[string]string{"host": fmt.Sprint(c.name, "-", i)}), cohort: c}
		c.workers = append(c.workers, w)
		if err := f.call(w); err != nil {
			return err
		}
	}
	weights, sum := make([]float64, f.instances), 0.0
	for i := range weights {
		weights[i] = 0.5 + f.random.Float64()
		sum += weights[i]
	}
	for i := range f.instances {
		n := &quotaInstance{name: fmt.Sprintf("%s/team%d", c.name, i), cohort: c}
		n.quota.Min = int64(0.8 * float64(f.workers) * weights[i] / sum)
		if i%3 == 0 {
			n.quota.Max = 2*n.quota.Min + 1
		}
		c.instances = append(c.instances, n)
		if f.isGreedy(n) {
			n.quota = quota.Quota{}
		}
		if n.quota != (quota.Quota{}) {
			key := quota.Key{Cohort: c.name, Instance: n.name}
			out := f.state.Step(f.now, core.PutQuota{Record: quota.Record{Key: key, Quota: n.quota}})
			if out.Err != nil {
				return out.Err
			}
			f.do(out)
		}
		f.at(f.now.Add(f.exponential(f.pace/2)), swing{instance: n})
	}
	return nil
}

func (f *quotaFarm) exponential(mean time.Duration) time.Duration {
	return time.Duration(f.random.ExpFloat64() * float64(mean))
}

func (f *quotaFarm) at(t time.Time, s swing) {
	f.order++
	s.at, s.order = t, f.order
	if s.worker != nil {
		s.worker.next = f.order
	}
	heap.Push(&f.events, s)
}

// run advances the time to the end. It calls after after each event, unless after is nil.
func (f *quotaFarm) run(after func() error) error {
	for end := f.began.Add(f.length); ; {
		s := f.events[0]
		due := s.at
		if !f.tick.IsZero() && f.tick.Before(due) {
			due = f.tick
		}
		if due.After(end) {
			return nil
		}
		f.pass(due)
		switch {
		case due.Before(s.at):
			f.do(f.state.Step(f.now, event.Tick{}))
		default:
			heap.Pop(&f.events)
			if err := f.happen(s); err != nil {
				return err
			}
		}
		if after != nil {
			if err := after(); err != nil {
				return fmt.Errorf("after %s: %w", f.now.Sub(f.began), err)
			}
		}
	}
}

func (f *quotaFarm) happen(s swing) error {
	switch {
	case s.instance != nil:
		return f.swing(s.instance)
	case s.worker.next == s.order:
		return f.call(s.worker)
	}
	return nil
}

// pass advances the clock, and counts the capacity that was offered and used meanwhile.
func (f *quotaFarm) pass(to time.Time) {
	if !to.After(f.now) {
		return
	}
	d := to.Sub(f.now).Seconds()
	for _, c := range f.cohortList {
		if c.ready > 0 {
			f.offered += d * float64(len(c.workers))
			f.used += d * float64(c.busy)
		}
	}
	f.now = to
}

// swing changes the demand of an instance: sometimes to nothing, at most to six times its
// guarantee.
func (f *quotaFarm) swing(n *quotaInstance) error {
	length := f.exponential(f.pace)
	switch {
	case f.isGreedy(n):
		n.demand = 2 * f.workers
	case n.demand > 0:
		n.demand, length = 0, f.exponential(f.pace/2)
	default:
		n.demand = 1 + int(float64(n.quota.Min)*6*math.Pow(f.random.Float64(), 2))
	}
	f.at(f.now.Add(length), swing{instance: n})
	return f.ask(n)
}

func (f *quotaFarm) isGreedy(n *quotaInstance) bool { return f.greedy && n == n.cohort.instances[0] }

// ask submits operations up to the demand of an instance.
func (f *quotaFarm) ask(n *quotaInstance) error {
	for int(n.used)+len(n.waiting) < n.demand {
		f.made++
		name := fmt.Sprint("operations/", f.made)
		d := digest.Of(digest.SHA256, []byte(name))
		op := &quotaOperation{action: d, instance: n, since: f.now}
		op.duration = time.Second + time.Duration(float64(f.typical)*math.Exp(1.2*f.random.NormFloat64()))
		f.operations[name] = op
		n.waiting = append(n.waiting, op)
		out := f.state.Step(f.now, event.Submit{Operation: &request.Operation{
			Name: name, Instance: n.name, Digest: d,
			Action: &repb.Action{}, Platform: n.cohort.platform,
		}})
		if out.Err != nil {
			return out.Err
		}
		f.do(out)
		f.touch(n)
	}
	return nil
}

// call has a worker report its state.
func (f *quotaFarm) call(w *quotaWorker) error {
	f.calls++
	f.callers[f.calls] = w
	r := &event.Report{Call: f.calls, Worker: w.key, Platform: w.cohort.platform, Doing: event.Idle}
	var ended *quotaOperation
	if op := w.op; op != nil {
		r.Doing = event.Executing
		r.Action = op.action
		if !f.now.Before(w.end.Add(-f.upload)) {
			r.Stage = event.Uploading
		}
		if !f.now.Before(w.end) {
			r.Doing, r.Stage, ended = event.Completed, event.Fetching, op
			r.Response = &repb.ExecuteResponse{Result: &repb.ActionResult{}}
			f.done += op.duration.Seconds()
			f.free(w)
		}
	}
	f.do(f.state.Step(f.now, r))
	if ended == nil {
		return nil
	}
	f.touch(ended.instance)
	return f.ask(ended.instance) // the client continues with its next operation
}

// do applies the effects that State returns.
func (f *quotaFarm) do(out event.Out) {
	f.tick = out.NextTick
	for _, r := range out.Replies {
		w := f.callers[r.Call]
		delete(f.callers, r.Call)
		if r.Do == event.Execute {
			stopped := w.op != nil
			if stopped {
				f.stopRun(w)
			}
			f.start(w, f.operations[r.Run.Name])
			if stopped {
				w.end = w.end.Add(f.stop)
			}
		}
		f.nextCall(w, r.NextSync)
	}
	for _, st := range out.Notices {
		if st.Done() {
			delete(f.operations, st.Name)
		}
	}
}

// nextCall schedules a worker's next call: when it must call, or when its action ends.
func (f *quotaFarm) nextCall(w *quotaWorker, at time.Time) {
	if w.op != nil && w.end.Before(at) {
		at = w.end
	}
	f.at(at, swing{worker: w})
}

func (f *quotaFarm) start(w *quotaWorker, op *quotaOperation) {
	n := op.instance
	w.op, w.end = op, f.now.Add(op.duration)
	i := slices.Index(n.waiting, op)
	n.waiting = slices.Delete(n.waiting, i, i+1)
	op.since = f.now
	n.used++
	n.cohort.busy++
	f.touch(n)
}

// free removes a worker's operation from it.
func (f *quotaFarm) free(w *quotaWorker) {
	w.op.instance.used--
	w.cohort.busy--
	w.op = nil
}

// stopRun queues a worker's operation again.
func (f *quotaFarm) stopRun(w *quotaWorker) {
	op := w.op
	f.free(w)
	f.lost += f.now.Sub(op.since).Seconds()
	f.stopped++
	op.stopped++
	op.since = f.now
	op.instance.waiting = append(op.instance.waiting, op)
	f.touch(op.instance)
}

// touch updates the account after a change of an instance. A shortfall that begins and ends at the
// same time does not count.
func (f *quotaFarm) touch(n *quotaInstance) {
	ready := len(n.waiting) > 0 && (n.quota.Max == 0 || n.used < n.quota.Max)
	if ready != n.ready {
		n.ready = ready
		if ready {
			n.cohort.ready++
		} else {
			n.cohort.ready--
		}
	}
	below := ready && n.used < n.quota.Min
	switch {
	case below && n.below.IsZero():
		n.below = f.now
	case !below && !n.below.IsZero():
		if d := f.now.Sub(n.below).Seconds(); d > 0 {
			n.episodes = append(n.episodes, d)
		}
		n.below = time.Time{}
	}
}
