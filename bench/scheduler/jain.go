package scheduler

import (
	"context"
	"fmt"
	"slices"

	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// The farm of the fairness measurement: a tree of invocations. All branches of a level have equally
// many branches below.
const (
	jainWorkers  = 1_000
	jainSamples  = 200
	jainPerBatch = 500 // completed actions between two samples
)

// jainShape returns the number of branches of each branch, by level.
func jainShape() [3]int { return [3]int{5, 5, 2} }

// benchJain measures at each level how evenly running work is shared between invocations with very
// different demands.
func benchJain(ctx context.Context, _ *report.Options) ([]report.Row, error) {
	report.Progress("fairness")
	f, err := newVirtualFarm(jainWorkers, 1)
	if err != nil {
		return nil, err
	}
	shape := jainShape()
	leaves := shape[0] * shape[1] * shape[2]
	more := func(leaf int) *virtualOperation {
		pair := leaf / shape[2]
		op := f.operation(request.Metadata{
			Correlated: fmt.Sprint("build ", pair), ToolInvocation: fmt.Sprint("step ", leaf),
		}, fmt.Sprint("team-", pair/shape[1]))
		op.leaf = leaf
		return op
	}
	// The last invocation has 50 times as many queued actions as the first one, which has more than
	// enough for its share.
	for leaf := range leaves {
		for range 40 * (leaf + 1) {
			if err := f.submit(more(leaf)); err != nil {
				return nil, err
			}
		}
	}
	var samples [3][]float64
	for sample := range jainSamples + 20 {
		for range jainPerBatch {
			// A client whose action has ended requests another one, so demand stays constant.
			if err := f.step(more(f.running[0].op.leaf)); err != nil {
				return nil, err
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if sample < 20 {
			continue // work that began before the last invocation came has not ended yet
		}
		for level := range shape {
			samples[level] = append(samples[level], jain(f.runningWork(level)))
		}
	}
	worst, note := 1.0, ""
	for level, values := range samples {
		worst = min(worst, report.Median(values))
		note += fmt.Sprintf("level %d: %.4f, at worst %.4f; ", level+1, report.Median(values), slices.Min(values))
	}
	r := report.NewRow("jain", worst, "")
	r.Wanted = "≥ 0.99"
	r.Note = note + fmt.Sprintf("%d invocations, the largest wants 50 times as much as the smallest, %d workers", leaves, jainWorkers)
	return []report.Row{r}, nil
}

// runningWork counts the running actions of each branch of a level.
func (f *virtualFarm) runningWork(level int) []float64 {
	shape := jainShape()
	below := 1
	for _, n := range shape[level+1:] {
		below *= n
	}
	work := make([]float64, shape[0]*shape[1]*shape[2]/below)
	for _, w := range f.running {
		work[w.op.leaf/below]++
	}
	return work
}

// jain is Jain's fairness index: 1 if all are equal, 1/n if one has everything.
func jain(values []float64) float64 {
	var sum, squares float64
	for _, v := range values {
		sum += v
		squares += v * v
	}
	return sum * sum / (float64(len(values)) * squares)
}
