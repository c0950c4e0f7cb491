package sizes

import (
	"container/heap"
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

const (
	// workersOfPool is the number of workers in each of the two pools.
	workersOfPool = 3
	// asksEvery: one of asksEvery builds requests the property that only the second pool has.
	asksEvery = 5
	// settledExponent is so close to 1 that moving to another pool is never worth it.
	settledExponent = 0.99
	longCall        = 10_000 * time.Hour
)

// simPools are two pools of the largest class with the scheduler's core. Workers of the second pool
// have an additional property, which few builds request. Other builds fit both pools, and start to
// wait for the first one.
type simPools struct {
	p       *sizesParameters
	jobs    []*simJob
	state   *core.State
	now     time.Time
	tick    time.Time
	calls   uint64
	workers []*simWorker
	running simEnds
	done    int
	result  simResult
}

// A simWorker runs one job at a time.
type simWorker struct {
	index int
	job   int
	end   time.Time
}

// simulatePools runs jobs in order; exponent is tuning.Config.SizeExponent.
func simulatePools(ctx context.Context, p *sizesParameters, jobs []*simJob, exponent float64) (simResult, error) {
	state, err := core.NewState(tuning.Config{
		SizeExponent: exponent, SyncInterval: longCall, IdleHold: longCall, WorkerSlack: longCall, MaxQueued: len(jobs) + 1,
	})
	if err != nil {
		return simResult{}, err
	}
	f := &simPools{p: p, jobs: jobs, state: state, result: simResult{delays: make([]time.Duration, len(jobs))}}
	f.now = jobs[0].arrives
	for i := range 2 * workersOfPool {
		f.workers = append(f.workers, &simWorker{index: i})
	}
	for _, w := range f.workers {
		f.report(w, event.Report{Doing: event.Idle})
	}
	for i := range jobs {
		f.until(jobs[i].arrives)
		if err := f.submit(i); err != nil {
			return simResult{}, err
		}
		if ctx.Err() != nil {
			return simResult{}, ctx.Err()
		}
	}
	for f.done < len(jobs) {
		at := f.next()
		if at.IsZero() || ctx.Err() != nil {
			return simResult{}, fmt.Errorf("%d jobs never end: %w", len(jobs)-f.done, context.Cause(ctx))
		}
		f.until(at)
	}
	f.result.spilled = int(f.state.View().Tally().Moved)
	return f.result, nil
}

// platform returns the platform of workers or builds, with or without the additional property.
func platform(property bool) request.Platform {
	p := &repb.Platform{Properties: []*repb.Platform_Property{{Name: "OSFamily", Value: "linux"}}}
	if property {
		p.Properties = append(p.Properties, &repb.Platform_Property{Name: "disk", Value: "fast"})
	}
	return request.NewPlatform(p)
}

// next returns the time of the next end of an action, or of the state's next timer.
func (f *simPools) next() time.Time {
	if len(f.running) > 0 && (f.tick.IsZero() || f.running[0].end.Before(f.tick)) {
		return f.running[0].end
	}
	return f.tick
}

// until advances the time to t.
func (f *simPools) until(t time.Time) {
	for at := f.next(); !at.IsZero() && !at.After(t); at = f.next() {
		if at.After(f.now) {
			f.now = at
		}
		if len(f.running) == 0 || !at.Equal(f.running[0].end) {
			f.do(f.state.Step(f.now, event.Tick{}))
			continue
		}
		w := heap.Pop(&f.running).(*simWorker)
		f.report(w, event.Report{
			Doing: event.Completed, Action: digestOf(w.job), Response: &repb.ExecuteResponse{Result: &repb.ActionResult{}},
		})
	}
	if t.After(f.now) {
		f.now = t
	}
}

func digestOf(job int) digest.Digest {
	return digest.Of(digest.SHA256, binary.BigEndian.AppendUint64(nil, uint64(job)))
}

func (f *simPools) submit(i int) error {
	build := i / f.p.ActionsPerBuild
	out := f.state.Step(f.now, event.Submit{Operation: &request.Operation{
		Name: strconv.Itoa(i), Digest: digestOf(i), Action: &repb.Action{}, Platform: platform(build%asksEvery == 0),
		Request: request.Metadata{ToolInvocation: strconv.Itoa(build), Correlated: strconv.Itoa(build)},
	}})
	f.do(out)
	return out.Err
}

// report has a worker call the scheduler, again if the scheduler tells it to be idle.
func (f *simPools) report(w *simWorker, r event.Report) {
	f.calls++
	name := fmt.Sprint("worker", w.index)
	r.Call = f.calls*uint64(len(f.workers)) + uint64(w.index)
	r.Worker, r.ID, r.Platform = name, map[string]string{"name": name}, platform(w.index >= workersOfPool)
	f.do(f.state.Step(f.now, &r))
}

// do carries out the effects of the state.
func (f *simPools) do(out event.Out) {
	f.tick = out.NextTick
	for _, st := range out.Notices {
		if st.Done() {
			i, _ := strconv.Atoi(st.Name) // submit uses the index as the name
			f.result.delays[i] = f.now.Sub(f.jobs[i].arrives)
			f.done++
			f.tick = f.state.Step(f.now, event.Detach{Name: st.Name}).NextTick
		}
	}
	for _, r := range out.Replies {
		w := f.workers[r.Call%uint64(len(f.workers))]
		if r.Do != event.Execute {
			f.report(w, event.Report{Doing: event.Idle})
			continue
		}
		w.job, _ = strconv.Atoi(r.Run.Name)
		took, _ := f.jobs[w.job].took(f.p.largest())
		w.end = f.now.Add(took)
		heap.Push(&f.running, w)
	}
}

// simEnds is a heap of workers by the end of their job.
type simEnds []*simWorker

func (e simEnds) Len() int           { return len(e) }
func (e simEnds) Less(i, j int) bool { return e[i].end.Before(e[j].end) }
func (e simEnds) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *simEnds) Push(x any)        { *e = append(*e, x.(*simWorker)) }
func (e *simEnds) Pop() any {
	last := len(*e) - 1
	w := (*e)[last]
	*e = (*e)[:last]
	return w
}

// benchPools simulates two pools with and without moves between them.
func benchPools(ctx context.Context, p *sizesParameters, jobs []*simJob, exponent float64) ([]report.Row, error) {
	var figures []simFigure
	for _, x := range []float64{exponent, settledExponent} {
		r, err := simulatePools(ctx, p, jobs, x)
		if err != nil {
			return nil, fmt.Errorf("simulate two pools with exponent %g: %w", x, err)
		}
		figures = append(figures, figureOf("", r, r, p.ActionsPerBuild))
	}
	return poolRows(figures[0], figures[1]), nil
}

// poolRows returns the rows of sizes.json about moves between pools.
func poolRows(with, without simFigure) []report.Row {
	return moveRows("pools_", "went to the other pool", with, without, func(f simFigure) string {
		return fmt.Sprintf("95th percentile %.4g", f.p95Makespan)
	})
}
