package main

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
)

// Sizes of the virtual farm, as the issue wants them.
const (
	virtualWorkers     = 10_000
	virtualInvocations = 10_000
	fewQueued          = 10_000
	manyQueued         = 1_000_000
)

// A decisionRun is one farm measured.
type decisionRun struct {
	perSecond, microseconds float64
	bytesPerOp              float64 // in State
	messageBytes            float64 // of the operation itself, made by the caller
}

// benchDecisions measures how fast a State decides, and what it needs for each
// queued operation, when few and when many are queued.
func benchDecisions(ctx context.Context, o *options) ([]row, error) {
	few, err := decisions(ctx, fewQueued, o.runs)
	if err != nil {
		return nil, err
	}
	many, err := decisions(ctx, manyQueued, o.runs)
	if err != nil {
		return nil, err
	}
	rate := func(r decisionRun) float64 { return r.perSecond }
	of := func(runs []decisionRun, what func(decisionRun) float64) []float64 {
		var values []float64
		for _, r := range runs {
			values = append(values, what(r))
		}
		return values
	}
	perOp := of(many, func(r decisionRun) float64 { return r.bytesPerOp })
	costs := func(r decisionRun) float64 { return r.microseconds }

	first := newRow("decisions_per_s_1e4", median(of(few, rate)), "1/s")
	first.Note = fmt.Sprintf("%s; %s µs each; 10,000 workers, 10,000 operations queued in as many invocations",
		spread(of(few, rate)), formatValue(median(of(few, costs))))
	second := newRow("decisions_per_s_1e6", median(of(many, rate)), "1/s")
	second.wanted = "≥ 200000"
	second.Note = fmt.Sprintf("%s; %s µs each; the same with 1,000,000 queued", spread(of(many, rate)),
		formatValue(median(of(many, costs))))
	third := newRow("bytes_per_op", median(perOp), "B")
	third.wanted = "< 1024"
	third.Note = fmt.Sprintf("with 1,000,000 queued; with 10,000: %s; the caller's Operation and Action are another %s",
		formatValue(median(of(few, func(r decisionRun) float64 { return r.bytesPerOp }))),
		formatValue(median(of(many, func(r decisionRun) float64 { return r.messageBytes }))))
	return []row{first, second, third}, nil
}

// decisions measures farms with so many operations queued, one after another.
func decisions(ctx context.Context, queued, runs int) ([]decisionRun, error) {
	var done []decisionRun
	for i := range runs {
		progress("run %d of %d: decisions with %d operations queued", i+1, runs, queued)
		r, err := decide(ctx, queued)
		if err != nil {
			return nil, fmt.Errorf("decide with %d queued: %w", queued, err)
		}
		done = append(done, r)
	}
	return done, nil
}

// decide fills a farm and measures it, on one core, garbage collection included.
func decide(ctx context.Context, queued int) (r decisionRun, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	f, err := newVirtualFarm(virtualWorkers)
	if err != nil {
		return r, err
	}
	metadata := invocations(virtualInvocations)
	before := heapBytes()
	// What runs, what waits, what is done and kept, and some between the two.
	ops := make([]*virtualOperation, virtualWorkers+queued+2*keptCompleted)
	for i := range ops {
		leaf := i % virtualInvocations
		ops[i] = f.operation(i, metadata[leaf], fmt.Sprintf("team-%02d", leaf%20))
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
	f.spare = slices.Clone(ops[virtualWorkers+queued:])
	// Warm up: the kept ones fill up, and the starts of actions spread.
	if err := f.steps(ctx, 3*virtualWorkers); err != nil {
		return r, err
	}
	const n = 500_000
	start, decided := time.Now(), f.decisions
	if err := f.steps(ctx, n); err != nil {
		return r, err
	}
	took := time.Since(start)
	if f.decisions-decided != n {
		return r, fmt.Errorf("%d decisions in %d steps: workers are idle", f.decisions-decided, n)
	}
	r.perSecond, r.microseconds = n/took.Seconds(), took.Seconds()*1e6/n
	return r, nil
}

// invocations returns the metadata of n of them; twenty or so share what they are
// correlated by.
func invocations(n int) []*repb.RequestMetadata {
	all := make([]*repb.RequestMetadata, n)
	for i := range all {
		all[i] = &repb.RequestMetadata{
			ToolInvocationId:        fmt.Sprintf("11111111-1111-1111-1111-%012d", i),
			CorrelatedInvocationsId: fmt.Sprintf("22222222-2222-2222-2222-%012d", i%400),
		}
	}
	return all
}

// heapBytes is what lives on the heap.
func heapBytes() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}
