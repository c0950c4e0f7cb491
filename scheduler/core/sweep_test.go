package core

import (
	"fmt"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// A herd is a State with many tasks. It counts what each event does to them.
type herd struct {
	t     *testing.T
	state *State
	now   time.Time
	calls uint64
	// steps counts the events, most is the most tasks that one of them has moved or ended; ended
	// counts all that ended.
	steps, most, ended int
	// given are the operations that workers have been given.
	given []string
}

const (
	herdTasks = 10_000
	// herdMost limits the moves of one event: as many as its effort is enough for, and one more,
	// which began with the last of it.
	herdMost = tuning.DefaultEffort/moveEffort + 1
)

// newHerd returns a State with one busy worker and many tasks that wait for it.
func newHerd(t *testing.T, cfg tuning.Config) *herd {
	h := &herd{t: t, state: must(NewState(cfg)), now: epoch}
	h.report("w", event.Idle)
	for i := range herdTasks + 1 {
		name := fmt.Sprint("op", i)
		h.tell(event.Submit{Operation: &request.Operation{
			Name: name, Digest: digest.Of(digest.SHA256,
				[]byte(name)), Action: &repb.Action{}, Instance: fmt.Sprint(i % 100),
		}})
	}
	if n := h.state.View().Counts(); n.Queued != herdTasks || n.Executing != 1 {
		t.Fatalf("%+v", n)
	}
	return h
}

func (h *herd) report(worker string, doing event.Doing) {
	h.calls++
	r := &event.Report{Call: h.calls, Worker: worker, ID: map[string]string{"name": worker}, Doing: doing}
	if w := h.state.workers.Get(worker); doing == event.Executing && w != nil && w.task != nil {
		r.Action = w.task.spec.Digest
	}
	h.tell(r)
}

// tell is Step. It compares where tasks are, before and after.
func (h *herd) tell(e event.Event) event.Out {
	h.t.Helper()
	before := h.state.View().Counts()
	out := h.state.Step(h.now, e)
	after := h.state.View().Counts()
	for _, r := range out.Replies {
		if r.Do == event.Execute {
			h.given = append(h.given, r.Run.Name)
		}
	}
	done := 0
	for _, st := range out.Notices {
		if st.Done() {
			done++
		}
	}
	moved := after.Unmatched - before.Unmatched + done
	h.ended += done
	h.most = max(h.most, moved, -moved, len(out.Notices))
	h.steps++
	if next := out.NextTick; h.state.isBehind() && next.After(h.now) {
		h.t.Fatalf("something is left to do, and the next event is to come at %s", next.Sub(h.now))
	}
	return out
}

// catchUp ticks until nothing is due.
func (h *herd) catchUp() {
	h.t.Helper()
	for out := h.tell(event.Tick{}); !out.NextTick.IsZero() && !out.NextTick.After(h.now); out = h.tell(event.Tick{}) {
		if h.steps > 10*herdTasks {
			h.t.Fatal("there is no end")
		}
	}
	if problem := h.state.Check(); problem != "" {
		h.t.Fatal(problem)
	}
}

// lose has time pass until the only worker is lost, and returns how many tasks are unmatched after
// that event.
func (h *herd) lose() int {
	h.now = h.now.Add(31 * time.Second)
	h.tell(event.Tick{})
	return h.state.View().Counts().Unmatched
}

// TestLastWorkerLeaves: all waiting tasks must find another queue, and then fail, in events of
// limited effort.
func TestLastWorkerLeaves(t *testing.T) {
	h := newHerd(t, tuning.Config{})
	if n := h.lose(); n == 0 || n > herdMost {
		t.Errorf("%d tasks were moved at once", n)
	}
	if problem := h.state.Check(); problem != "" {
		t.Fatal(problem)
	}
	h.catchUp()
	if n := h.state.View().Counts(); n.Unmatched != herdTasks+1 {
		t.Errorf("%+v", n)
	}
	h.now = h.now.Add(h.state.Config().MatchGrace)
	h.tell(event.Tick{})
	if h.ended == 0 || h.ended > herdMost {
		t.Errorf("%d operations failed at once", h.ended)
	}
	h.catchUp()
	if n := h.state.View().Counts(); h.ended != herdTasks+1 || n.Queued+n.Unmatched > 0 || h.most > herdMost {
		t.Errorf("%d operations have ended, at most %d tasks were moved at once, %+v", h.ended, h.most, n)
	}
}

// TestWorkerComesBackMeanwhile removes the last worker, and adds another one before all waiting
// tasks have moved or failed. The remaining ones must be served.
func TestWorkerComesBackMeanwhile(t *testing.T) {
	h := newHerd(t, tuning.Config{})
	h.lose()
	given := len(h.given)
	h.report("w", event.Idle)
	if len(h.given) != given+1 {
		t.Fatal("the worker is given nothing")
	}
	h.catchUp()
	if n := h.state.View().Counts(); n.Unmatched != 0 || n.Queued != herdTasks || h.ended > 0 {
		t.Errorf("%+v, %d have ended", n, h.ended)
	}
	// Lost again. Some fail before it is back.
	h.lose()
	h.catchUp()
	h.now = h.now.Add(h.state.Config().MatchGrace)
	h.tell(event.Tick{})
	failed := h.ended
	if failed == 0 || failed > herdMost {
		t.Fatalf("%d have failed", failed)
	}
	given = len(h.given)
	h.report("w", event.Idle)
	h.catchUp()
	if n := h.state.View().Counts(); len(h.given) == given ||
		h.ended+n.Queued+n.Executing != herdTasks+1 || h.most > herdMost {
		t.Errorf("%d have ended, %+v, at most %d tasks were moved at once", h.ended, n, h.most)
	}
}

// TestManyWaitForDrainedWorkers has the workers of many be drained, undrained, and drained until
// all of it fails.
func TestManyWaitForDrainedWorkers(t *testing.T) {
	h := newHerd(t, tuning.Config{SyncInterval: 48 * time.Hour, WorkerSlack: 48 * time.Hour})
	all := drain.Record{Pattern: must(pattern.Parse("name=*"))}
	for range 3 {
		h.tell(Drain{Record: all})
		h.tell(Undrain{Pattern: all.Pattern})
	}
	h.tell(Drain{Record: all})
	h.catchUp()
	if n := h.state.Timers.Len(); n > 10 {
		t.Errorf("%d timers are set for what waits for the same", n)
	}
	h.now = h.now.Add(h.state.Config().DrainGrace - time.Second)
	h.report("w", event.Executing)
	h.catchUp()
	if h.ended > 0 {
		t.Fatalf("%d have failed too early", h.ended)
	}
	h.now = h.now.Add(time.Second)
	h.catchUp()
	if h.ended != herdTasks || h.most > herdMost {
		t.Errorf("%d have failed, at most %d tasks were moved at once", h.ended, h.most)
	}
}

// TestManyWorkersSettle adds many workers before State has settled, and others that hold waiting
// actions. Each must get its action, in events that assign few.
func TestManyWorkersSettle(t *testing.T) {
	const workers = 2000
	h := &herd{t: t, state: must(NewState(tuning.Config{Settle: 5 * time.Second})), now: epoch}
	for i := range workers {
		h.report(fmt.Sprint("w", i), event.Idle)
		name := fmt.Sprint("op", i)
		h.tell(event.Submit{Operation: &request.Operation{
			Name:   name,
			Digest: digest.Of(digest.SHA256, []byte(name)), Action: &repb.Action{},
		}})
	}
	h.now = h.now.Add(5 * time.Second)
	h.catchUp()
	if len(h.given) != workers || h.most > tuning.DefaultEffort/endEffort+1 {
		t.Errorf("%d workers have an action, at most %d were given one at once", len(h.given), h.most)
	}
}

// TestManyWorkersAreUndrained drains and undrains many workers while their calls wait and there are
// more tasks than they can take. Each must get its action, in events that assign few.
func TestManyWorkersAreUndrained(t *testing.T) {
	const workers = 2000
	h := &herd{t: t, state: must(NewState(tuning.Config{})), now: epoch}
	all := drain.Record{Pattern: must(pattern.Parse("name=*"))}
	for i := range workers {
		h.report(fmt.Sprint("w", i), event.Idle)
	}
	h.tell(Drain{Record: all})
	for i := range 2 * workers {
		name := fmt.Sprint("op", i)
		h.tell(event.Submit{Operation: &request.Operation{
			Name: name, Digest: digest.Of(digest.SHA256, []byte(name)), Action: &repb.Action{},
		}})
	}
	h.tell(Undrain{Pattern: all.Pattern})
	h.catchUp()
	if len(h.given) != workers || h.most > tuning.DefaultEffort/endEffort+1 {
		t.Errorf("%d workers have an action, at most %d were given one at once", len(h.given), h.most)
	}
}

// TestManyWorkersAreDrained has many idle workers be drained and undrained, in events that change
// few. One that calls meanwhile is not given anything any more.
func TestManyWorkersAreDrained(t *testing.T) {
	const workers = 2000
	h := &herd{t: t, state: must(NewState(tuning.Config{})), now: epoch}
	all := drain.Record{Pattern: must(pattern.Parse("name=*"))}
	for i := range workers {
		h.report(fmt.Sprint("w", i), event.Idle)
	}
	most, last := 0, fmt.Sprint("w", workers-1)
	change := func(e event.Event) {
		before := h.state.View().Counts().Draining
		h.tell(e)
		n := h.state.View().Counts().Draining - before
		most = max(most, n, -n)
	}
	change(Drain{Record: all})
	if !h.state.View().IsReviewing() || h.state.workers.Get(last).takes.isDrained() {
		t.Error("all are drained at once")
	}
	h.report(last, event.Idle)
	if !h.state.workers.Get(last).takes.isDrained() {
		t.Error("one that calls is not drained")
	}
	for h.state.View().IsReviewing() {
		change(event.Tick{})
	}
	if n := h.state.View().Counts(); n.Draining != workers {
		t.Errorf("%+v", n)
	}
	change(Undrain{Pattern: all.Pattern})
	for h.state.View().IsReviewing() {
		change(event.Tick{})
	}
	if n := h.state.View().Counts(); n.Idle != workers || most > tuning.DefaultEffort/endEffort+1 {
		t.Errorf("%+v, at most %d were drained or undrained at once", n, most)
	}
	if problem := h.state.Check(); problem != "" {
		t.Error(problem)
	}
}

// TestManyAboveMaximum has the maximum of an instance be lowered far below what it runs, with its
// runs to be stopped, and then another instance get a minimum that is all of the farm: events that
// mark few choose what is stopped.
func TestManyAboveMaximum(t *testing.T) {
	const workers = 3000
	cohort := quota.Config{
		Labels:  []quota.Label{{Name: "plain", Properties: map[string]string{"pool": "c"}}},
		Cohorts: []quota.Cohort{{Name: "c", Labels: []string{"plain"}}},
	}
	h := &herd{t: t, now: epoch, state: must(NewState(tuning.Config{
		Quotas: cohort, SyncInterval: never, WorkerSlack: never, PreemptionDelay: time.Second, PreemptionGrace: time.Second,
	}))}
	submit := func(instance string, n int) {
		for i := range n {
			name := fmt.Sprint(instance, i)
			h.state.Step(h.now, event.Submit{Operation: &request.Operation{
				Name: name, Digest: digest.Of(digest.SHA256, []byte(name)), Action: &repb.Action{}, Instance: instance,
			}})
		}
	}
	put := func(instance string, q quota.Quota) PutQuota {
		return PutQuota{Record: quota.Record{Key: quota.Key{Cohort: "c", Instance: instance}, Quota: q}, Preempt: true}
	}
	report := func(i int, doing event.Doing, action digest.Digest) {
		h.calls++
		name := fmt.Sprint("w", i)
		h.state.Step(h.now, &event.Report{
			Call: h.calls, Worker: name, ID: map[string]string{"name": name}, Doing: doing, Action: action, Stage: event.Running,
			Platform: request.NewPlatform(properties([]string{"pool=c"})),
		})
	}
	for i := range workers {
		report(i, event.Idle, digest.Digest{})
	}
	submit("a", workers)
	marked := func() (n int) {
		for _, w := range h.state.workers.All() {
			if sh := w.share(); sh != nil {
				if _, _, must := sh.GivesWay(); must {
					n++
				}
			}
		}
		return n
	}
	most, before := 0, 0
	tell := func(e event.Event) event.Out {
		out := h.tell(e)
		n := marked()
		most, before = max(most, n-before), n
		return out
	}
	tell(put("a", quota.Quota{Max: 1}))
	for h.state.isBehind() {
		tell(event.Tick{})
	}
	if before != workers-1 {
		t.Errorf("%d of %d runs above a maximum of 1 are to stop", before, workers)
	}
	tell(put("a", quota.Quota{Max: workers}))
	for i := range workers { // which need not stop any more
		report(i, event.Executing, h.state.workers.Get(fmt.Sprint("w", i)).task.spec.Digest)
	}
	if before = marked(); before != 0 {
		t.Fatalf("%d are still to stop", before)
	}
	submit("b", workers)
	tell(put("b", quota.Quota{Min: workers}))
	h.now = h.now.Add(time.Second)
	for out := tell(event.Tick{}); !out.NextTick.After(h.now); out = tell(event.Tick{}) {
	}
	if limit := 1 + tuning.DefaultEffort/moveEffort; before != workers || most > limit {
		t.Errorf("%d of %d are to stop for another instance; %d were chosen in one event, want %d at most", before, workers, most, limit)
	}
	if problem := h.state.Check(); problem != "" {
		t.Error(problem)
	}
}
