package scheduler

import (
	"container/heap"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// A virtualFarm is a core.State with workers and clients that take no time. Its clock moves from
// the end of one action to the end of the next. The number of queued actions stays the same: when
// an action ends, its client requests another one.
//
// The time of State is measured separately. Its inputs are new objects each time, as a server would
// make them from a request.
type virtualFarm struct {
	state *core.State
	now   time.Time
	tick  time.Time
	calls uint64
	// report is the report of the current call. State does not keep it.
	report  event.Report
	random  *rand.Rand
	workers []virtualWorker
	// running has the ends of actions. After an action a worker pauses until a number of other
	// actions have ended, and then requests the next one.
	running    ends
	resting    []*virtualWorker
	rests      int
	operations []*virtualOperation
	// spare has completed and forgotten operations for reuse, first in first out.
	spare []*virtualOperation
	// decisions counts assignments; inside is the time spent in State.
	decisions int
	inside    stateTime
}

// A stateTime is the time spent in the methods of a State.
type stateTime struct {
	submit time.Duration
	// decide is the time of calls of idle workers that get an action.
	decide time.Duration
	// end is the time of calls of workers that complete an action, of clients that then hang up,
	// and of timers.
	end time.Duration
}

func (s stateTime) all() time.Duration { return s.submit + s.decide + s.end }

func (s stateTime) less(o stateTime) stateTime {
	return stateTime{s.submit - o.submit, s.decide - o.decide, s.end - o.end}
}

type virtualWorker struct {
	index int
	key   string
	id    map[string]string
	op    *virtualOperation
	end   time.Time
}

type virtualOperation struct {
	*request.Operation
	duration time.Duration
	leaf     int // index of its invocation
}

// keptCompleted is the number of completed operations that the State keeps.
const keptCompleted = 10_000

// succeeded is the report of every worker.
var succeeded = &repb.ExecuteResponse{Result: &repb.ActionResult{}}

// newVirtualFarm returns a farm of idle workers with that many positions each.
func newVirtualFarm(workers, positions int) (*virtualFarm, error) {
	state, err := core.NewState(tuning.Config{MaxCompleted: keptCompleted, MaxQueued: 1 << 30})
	if err != nil {
		return nil, err
	}
	f := &virtualFarm{
		state: state, now: time.Unix(1_800_000_000, 0), random: rand.New(rand.NewPCG(1, 2)),
		workers: make([]virtualWorker, workers*positions),
	}
	for i := range f.workers {
		f.workers[i].index = i
		f.workers[i].id = map[string]string{
			names.HostKey: fmt.Sprint(i / positions), names.PositionKey: fmt.Sprint(i % positions),
		}
		f.workers[i].key = names.WorkerKey("", f.workers[i].id)
		f.sync(&f.workers[i], event.Report{Doing: event.Idle})
	}
	return f, nil
}

// operation makes the next operation, in an invocation.
func (f *virtualFarm) operation(of request.Metadata, instance string) *virtualOperation {
	i := len(f.operations)
	d := digest.Of(digest.SHA256, binary.LittleEndian.AppendUint64(nil, uint64(i)))
	op := &virtualOperation{
		Operation: &request.Operation{
			Name:     fmt.Sprintf(operationName, i),
			Instance: instance, Digest: d, Action: &repb.Action{}, Request: of,
		},
		duration: time.Second + time.Duration(f.random.Int64N(int64(20*time.Second))),
	}
	f.operations = append(f.operations, op)
	return op
}

// operationName returns the name of the i-th operation; named finds the operation by name.
const (
	operationName   = "operations/00000000-0000-0000-0000-%012d"
	operationDigits = 12
)

func (f *virtualFarm) named(name string) *virtualOperation {
	i := 0
	for _, c := range []byte(name[len(name)-operationDigits:]) {
		i = 10*i + int(c-'0')
	}
	return f.operations[i]
}

// renew makes a completed and forgotten operation usable again.
func (op *virtualOperation) renew() {
	of := op.Operation
	op.Operation = &request.Operation{
		Name: strings.Clone(of.Name), Instance: of.Instance, Digest: of.Digest, Action: of.Action, Request: of.Request,
	}
}

func (f *virtualFarm) submit(op *virtualOperation) error {
	start := time.Now()
	out := f.state.Step(f.now, event.Submit{Operation: op.Operation})
	f.inside.submit += time.Since(start)
	f.do(out)
	return out.Err
}

func (f *virtualFarm) sync(w *virtualWorker, r event.Report) {
	// The number identifies the call.
	f.calls++
	r.Call, r.Worker, r.ID, r.SizeClass = f.calls*uint64(len(f.workers))+uint64(w.index), strings.Clone(w.key), w.id, 1
	start := time.Now()
	f.report = r
	out := f.state.Step(f.now, &f.report)
	if r.Doing == event.Idle {
		f.inside.decide += time.Since(start)
	} else {
		f.inside.end += time.Since(start)
	}
	f.do(out)
}

// do carries out the effects that State returns. Clients hang up when their action has ended.
func (f *virtualFarm) do(out event.Out) {
	f.tick = out.NextTick
	for _, r := range out.Replies {
		if r.Do != event.Execute {
			continue
		}
		f.decisions++
		w := &f.workers[r.Call%uint64(len(f.workers))]
		w.op = f.named(r.Run.Name)
		w.end = f.now.Add(w.op.duration)
		heap.Push(&f.running, w)
	}
	for _, st := range out.Notices {
		if st.Done() {
			start := time.Now()
			f.tick = f.state.Step(f.now, event.Detach{Name: st.Name}).NextTick
			f.inside.end += time.Since(start)
			f.spare = append(f.spare, f.named(st.Name))
		}
	}
}

// step ends the next action and gives a new one to the worker that has paused longest. Before, it
// submits another action, so that the farm never runs out of work.
func (f *virtualFarm) step(next *virtualOperation) error {
	w := heap.Pop(&f.running).(*virtualWorker)
	for !f.tick.IsZero() && f.tick.Before(w.end) {
		start := time.Now()
		out := f.state.Step(f.tick, event.Tick{})
		f.inside.end += time.Since(start)
		f.do(out)
	}
	f.now = w.end
	if err := f.submit(next); err != nil {
		return err
	}
	f.sync(w, event.Report{
		Doing: event.Completed, Action: w.op.Digest, Response: succeeded, PreferIdle: true,
	})
	f.resting = append(f.resting, w)
	if len(f.resting) > f.rests {
		f.sync(f.resting[0], event.Report{Doing: event.Idle})
		f.resting = f.resting[1:]
	}
	return nil
}

// steps makes n steps with reused operations.
func (f *virtualFarm) steps(ctx context.Context, n int) error {
	for i := range n {
		if i%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		next := f.spare[0]
		f.spare = f.spare[1:]
		next.renew()
		if err := f.step(next); err != nil {
			return err
		}
	}
	return nil
}

// ends is a heap of workers by the end of their action.
type ends []*virtualWorker

func (e ends) Len() int           { return len(e) }
func (e ends) Less(i, j int) bool { return e[i].end.Before(e[j].end) }
func (e ends) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *ends) Push(x any)        { *e = append(*e, x.(*virtualWorker)) }
func (e *ends) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}
