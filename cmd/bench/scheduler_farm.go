package main

import (
	"container/heap"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler"
)

// A virtualFarm is a scheduler.State with workers and clients that take no time of
// their own. Its clock moves from one end of an action to the next. As many actions
// are queued as at the start, all the time: the client of one that ended asks for
// another one.
type virtualFarm struct {
	state   *scheduler.State
	now     time.Time
	tick    time.Time
	calls   uint64
	random  *rand.Rand
	workers []virtualWorker
	// byCall tells whom a reply is for, running who ends when.
	byCall  map[uint64]*virtualWorker
	running ends
	byName  map[string]*virtualOperation
	// spare are operations that are done and forgotten, first in first out.
	spare []*virtualOperation
	// decisions counts assignments.
	decisions int
}

type virtualWorker struct {
	key string
	op  *virtualOperation
	end time.Time
}

type virtualOperation struct {
	*scheduler.Operation
	action   string // as a worker reports it
	duration time.Duration
	leaf     int // which invocation
}

// keptCompleted is how many operations the State keeps that are done.
const keptCompleted = 10_000

// succeeded is what every worker reports.
var succeeded = &repb.ExecuteResponse{Result: &repb.ActionResult{}}

func newVirtualFarm(workers int) (*virtualFarm, error) {
	state, err := scheduler.NewState(scheduler.Config{MaxCompleted: keptCompleted, MaxQueued: 1 << 30})
	if err != nil {
		return nil, err
	}
	f := &virtualFarm{
		state: state, now: time.Unix(1_800_000_000, 0), random: rand.New(rand.NewPCG(1, 2)),
		workers: make([]virtualWorker, workers),
		byCall:  map[uint64]*virtualWorker{}, byName: map[string]*virtualOperation{},
	}
	for i := range f.workers {
		f.workers[i].key = scheduler.WorkerKey(map[string]string{"host": fmt.Sprint(i)})
		f.sync(&f.workers[i], scheduler.Report{Doing: scheduler.Idle})
	}
	return f, nil
}

// operation makes the i-th operation, which belongs to an invocation.
func (f *virtualFarm) operation(i int, of *repb.RequestMetadata, instance string) *virtualOperation {
	d := digest.Of(digest.SHA256, binary.LittleEndian.AppendUint64(nil, uint64(i)))
	op := &virtualOperation{
		Operation: &scheduler.Operation{
			Name:     fmt.Sprintf("operations/00000000-0000-0000-0000-%012d", i),
			Instance: instance, Digest: d, Action: &repb.Action{}, Request: of,
		},
		action:   d.String(),
		duration: time.Second + time.Duration(f.random.Int64N(int64(20*time.Second))),
	}
	f.byName[op.Name] = op
	return op
}

func (f *virtualFarm) submit(op *virtualOperation) error {
	out, err := f.state.Submit(f.now, op.Operation)
	f.do(out)
	return err
}

func (f *virtualFarm) sync(w *virtualWorker, r scheduler.Report) {
	f.calls++
	r.Call, r.Worker, r.SizeClass = f.calls, w.key, 1
	f.byCall[r.Call] = w
	f.do(f.state.Sync(f.now, r))
}

// do does what the State says. Clients that are told of the end hang up.
func (f *virtualFarm) do(out scheduler.Out) {
	f.tick = out.NextTick
	for _, r := range out.Replies {
		w := f.byCall[r.Call]
		delete(f.byCall, r.Call)
		if r.Do != scheduler.Execute {
			continue
		}
		f.decisions++
		w.op = f.byName[r.Run.Name]
		w.end = f.now.Add(w.op.duration)
		heap.Push(&f.running, w)
	}
	for _, st := range out.Notices {
		if st.Done() {
			f.tick = f.state.Detach(f.now, st.Name).NextTick
			f.spare = append(f.spare, f.byName[st.Name])
		}
	}
}

// step lets the next action end, and has another one submitted first: the farm is
// never without work.
func (f *virtualFarm) step(next *virtualOperation) error {
	w := heap.Pop(&f.running).(*virtualWorker)
	for !f.tick.IsZero() && f.tick.Before(w.end) {
		f.do(f.state.Tick(f.tick))
	}
	f.now = w.end
	if err := f.submit(next); err != nil {
		return err
	}
	f.sync(w, scheduler.Report{Doing: scheduler.Completed, Action: w.op.action, Response: succeeded})
	return nil
}

// steps takes n of them with operations that have been used before.
func (f *virtualFarm) steps(ctx context.Context, n int) error {
	for i := range n {
		if i%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		next := f.spare[0]
		f.spare = f.spare[1:]
		if err := f.step(next); err != nil {
			return err
		}
	}
	return nil
}

// ends is a heap of the workers by when they have done.
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
