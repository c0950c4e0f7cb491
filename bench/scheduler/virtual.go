package scheduler

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/hugepages"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// The size of the virtual farm.
const (
	virtualWorkers     = 10_000
	virtualRests       = 1000 // completed actions between two actions of a worker
	virtualInvocations = 10_000
	fewQueued          = 10_000
	manyQueued         = 1_000_000
	// Enough for garbage collections before and during the measurement.
	warmUpDecisions   = 1_000_000
	measuredDecisions = 1_500_000
)

// A decisionRun has the measurements of one farm. Times are in µs per decision.
type decisionRun struct {
	submit, decide, cycle float64 // in State; cycle is the whole time of an action
	whole                 float64 // including the simulated farm
	bytesPerOp            float64 // in State
	messageBytes          float64 // of the operation itself, which the caller makes
}

type decisionRuns []decisionRun

func (rs decisionRuns) of(what func(decisionRun) float64) []float64 {
	var values []float64
	for _, r := range rs {
		values = append(values, what(r))
	}
	return values
}

func (rs decisionRuns) median(what func(decisionRun) float64) string {
	return report.FormatValue(report.Median(rs.of(what)))
}

// decisionNames returns the rows of benchDecisions.
func decisionNames() []string {
	return []string{
		"decisions_per_s_1e4", "decisions_per_s_1e6", "cycles_per_s_1e4", "cycles_per_s_1e6", "bytes_per_op",
	}
}

// benchDecisions measures the rate of a State's decisions, and its memory per queued operation,
// with few and with many queued operations.
func benchDecisions(ctx context.Context, o *report.Options) ([]report.Row, error) {
	var few, many decisionRuns
	var err error
	if o.Wants("decisions_per_s_1e4", "cycles_per_s_1e4", "bytes_per_op") {
		if few, err = decisions(ctx, fewQueued, o); err != nil {
			return nil, err
		}
	}
	if o.Wants("decisions_per_s_1e6", "cycles_per_s_1e6", "bytes_per_op") {
		if many, err = decisions(ctx, manyQueued, o); err != nil {
			return nil, err
		}
	}
	return decisionRows(few, many), nil
}

// decisionRows returns the rows of runs with few and with many queued operations. Either may be
// empty.
func decisionRows(few, many decisionRuns) []report.Row {
	var rows []report.Row
	for i, runs := range []decisionRuns{few, many} {
		if len(runs) == 0 {
			continue
		}
		rates := runs.of(func(r decisionRun) float64 { return 1e6 / r.decide })
		decision := report.NewRow(decisionNames()[i], report.Median(rates), "1/s")
		decision.Note = fmt.Sprintf("%s; %s µs for the call of an idle worker, which gets an action",
			report.Spread(rates), runs.median(func(r decisionRun) float64 { return r.decide }))
		if i == 1 {
			decision.Wanted = "≥ 200000"
		}
		rates = runs.of(func(r decisionRun) float64 { return 1e6 / r.cycle })
		cycle := report.NewRow(decisionNames()[2+i], report.Median(rates), "1/s")
		cycle.Note = fmt.Sprintf("%s; %s µs to submit an action (%s), to give it to a worker, to end it, and for its client to hang up; including the simulated farm %s",
			report.Spread(rates), runs.median(func(r decisionRun) float64 { return r.cycle }),
			runs.median(func(r decisionRun) float64 { return r.submit }),
			runs.median(func(r decisionRun) float64 { return r.whole }))
		rows = append(rows, decision, cycle)
	}
	if len(few) == 0 || len(many) == 0 {
		return rows
	}
	bytesPerOp := func(r decisionRun) float64 { return r.bytesPerOp }
	size := report.NewRow("bytes_per_op", report.Median(many.of(bytesPerOp)), "B")
	size.Wanted = "< 1024"
	size.Note = fmt.Sprintf("with 1,000,000 queued; with 10,000: %s; the caller's Operation and Action are another %s",
		few.median(bytesPerOp), many.median(func(r decisionRun) float64 { return r.messageBytes }))
	return append(rows, size)
}

// decisions measures several farms with that many queued operations, one at a time and on one core.
// Garbage collection and huge pages are set up as in the scheduler's program.
func decisions(ctx context.Context, queued int, o *report.Options) (decisionRuns, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer serve.PaceMemory(ctx, report.MemoryBytes, true)()
	var done decisionRuns
	for i := range o.Runs {
		report.Progress("run %d of %d: decisions with %d operations queued", i+1, o.Runs, queued)
		r, err := decide(ctx, queued, o.Profile)
		if err != nil {
			return nil, fmt.Errorf("decide with %d queued: %w", queued, err)
		}
		done = append(done, r)
	}
	return done, nil
}

// decide fills a farm and measures it. If profile is not empty, it writes a CPU profile to that
// folder.
func decide(ctx context.Context, queued int, profile string) (r decisionRun, err error) {
	f, err := newVirtualFarm(virtualWorkers, 1)
	if err != nil {
		return r, err
	}
	metadata := invocations(virtualInvocations)
	before := heapBytes()
	// For running, waiting and completed operations, and some in between.
	ops := make([]*virtualOperation, virtualWorkers+queued+2*keptCompleted)
	for i := range ops {
		leaf := i % virtualInvocations
		ops[i] = f.operation(metadata[leaf], fmt.Sprintf("team-%02d", leaf%20))
	}
	f.random.Shuffle(len(ops), func(i, j int) { ops[i], ops[j] = ops[j], ops[i] })
	made := heapBytes()
	r.messageBytes = (made - before) / float64(len(ops))
	for _, op := range ops[:virtualWorkers] {
		if err := f.submit(op); err != nil {
			return r, err
		}
	}
	busy := heapBytes()
	for _, op := range ops[virtualWorkers : virtualWorkers+queued] {
		if err := f.submit(op); err != nil {
			return r, err
		}
	}
	r.bytesPerOp = (heapBytes() - busy) / float64(queued)
	f.rests = virtualRests
	f.spare = slices.Clone(ops[virtualWorkers+queued:])
	// Warm up: completed operations accumulate, the starts of actions spread out, and garbage
	// builds up.
	if err := f.steps(ctx, warmUpDecisions); err != nil {
		return r, err
	}
	hugepages.Settle(ctx) // as in a program that has run for a while
	if profile != "" {
		end, err := report.ProfileCPU(filepath.Join(profile, fmt.Sprintf("decide-%d.pprof", queued)))
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	start, inside, decided := time.Now(), f.inside, f.decisions
	if err := f.steps(ctx, measuredDecisions); err != nil {
		return r, err
	}
	if f.decisions-decided != measuredDecisions {
		return r, fmt.Errorf("%d decisions in %d steps: workers are idle", f.decisions-decided, measuredDecisions)
	}
	each := func(d time.Duration) float64 { return d.Seconds() * 1e6 / measuredDecisions }
	r.whole = each(time.Since(start))
	inside = f.inside.less(inside)
	r.submit, r.decide, r.cycle = each(inside.submit), each(inside.decide), each(inside.all())
	return r, nil
}

// invocations returns the metadata of n invocations. About twenty share each correlated invocations
// ID.
func invocations(n int) []request.Metadata {
	all := make([]request.Metadata, n)
	for i := range all {
		all[i] = request.Metadata{
			ToolInvocation: fmt.Sprintf("11111111-1111-1111-1111-%012d", i),
			Correlated:     fmt.Sprintf("22222222-2222-2222-2222-%012d", i%400),
		}
	}
	return all
}

// heapBytes returns the size of the live heap.
func heapBytes() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
