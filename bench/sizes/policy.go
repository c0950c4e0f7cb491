package sizes

import (
	"context"
	"time"

	"github.com/forerunner-build/forerunner/bench/sizes/peer"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// A simPolicy decides where jobs run.
type simPolicy struct {
	simChooser
	// spills is the exponent for spilling to idle workers of larger classes; 0: no spilling.
	spills float64
}

// A simChooser chooses the class on which a job starts.
type simChooser interface {
	first(context.Context, *simJob, sizeclass.Conditions) simAttempt
}

// A simAttempt is a run that a policy requested. The simulation calls exactly one of its methods
// other than Choice, once.
type simAttempt interface {
	Choice() sizeclass.Choice
	// succeeded returns a run to learn from; nil: none.
	succeeded(context.Context, sizeclass.Run) simAttempt
	// failed returns the next run; nil if the failure is final.
	failed(context.Context, sizeclass.Failure) simAttempt
	// moved returns the run on a larger class instead of this one, overdue the second run besides
	// this one.
	moved(class uint32) simAttempt
	overdue(largest uint32) simAttempt
	abandoned()
}

// An alwaysFirst starts all jobs on one class, and runs failed jobs again on the largest.
type alwaysFirst uint32

func (a alwaysFirst) first(_ context.Context, j *simJob, _ sizeclass.Conditions) simAttempt {
	return alwaysAttempt{sizeclass.Choice{Class: uint32(a), Timeout: j.action.Timeout}}
}

type alwaysAttempt struct{ choice sizeclass.Choice }

func (a alwaysAttempt) Choice() sizeclass.Choice                            { return a.choice }
func (a alwaysAttempt) succeeded(context.Context, sizeclass.Run) simAttempt { return nil }
func (a alwaysAttempt) overdue(uint32) simAttempt                           { panic("sizes: nothing is overdue") }
func (a alwaysAttempt) abandoned()                                          {}

func (a alwaysAttempt) failed(_ context.Context, f sizeclass.Failure) simAttempt {
	if a.choice.Class == f.Largest {
		return nil
	}
	return a.moved(f.Largest)
}

func (a alwaysAttempt) moved(class uint32) simAttempt {
	a.choice.Class = class
	return a
}

// A learned policy asks an Analyzer.
type learned struct{ *sizeclass.Analyzer }

func (l learned) first(ctx context.Context, j *simJob, c sizeclass.Conditions) simAttempt {
	_, learner := l.Analyze(ctx, j.action).Select(c)
	return learnedAttempt{learner, l.Analyzer}
}

type learnedAttempt struct {
	*sizeclass.Learner
	analyzer *sizeclass.Analyzer
}

func (a learnedAttempt) succeeded(ctx context.Context, r sizeclass.Run) simAttempt {
	a.analyzer.Learn(ctx, a.Succeeded(r))
	return nil
}

func (a learnedAttempt) failed(ctx context.Context, f sizeclass.Failure) simAttempt {
	v := a.Failed(f)
	if v.Retry == nil {
		a.analyzer.Learn(ctx, v.Lesson)
		return nil
	}
	return learnedAttempt{v.Retry, a.analyzer}
}

func (a learnedAttempt) moved(class uint32) simAttempt {
	return learnedAttempt{a.Moved(class), a.analyzer}
}

func (a learnedAttempt) overdue(largest uint32) simAttempt {
	return learnedAttempt{a.Overdue(largest), a.analyzer}
}

func (a learnedAttempt) abandoned() { a.Abandoned() }

// An ofPeer policy asks the peer's analyzer.
type ofPeer struct{ *peer.Analyzer }

func (p ofPeer) first(_ context.Context, j *simJob, c sizeclass.Conditions) simAttempt {
	classes := make([]uint32, len(c.Classes))
	for i, class := range c.Classes {
		classes[i] = class.Size
	}
	a := peerAttempt{
		analyzer: p.Analyzer, name: j.action.Reduced.String(), own: j.action.Timeout, largest: classes[len(classes)-1],
	}
	a.start = p.Choose(a.name, classes, a.own, c.Now)
	return a
}

type peerAttempt struct {
	analyzer *peer.Analyzer
	name     string
	own      time.Duration // timeout of the action
	largest  uint32
	start    peer.Start
	training bool
	before   *peerEnd
}

// A peerEnd is the outcome of a run that the analyzer learns only when the largest class succeeds.
type peerEnd struct {
	class    uint32
	took     time.Duration
	timedOut bool
}

func (a peerAttempt) Choice() sizeclass.Choice {
	return sizeclass.Choice{Class: a.start.Class, Timeout: a.start.Timeout}
}

func (a peerAttempt) succeeded(_ context.Context, r sizeclass.Run) simAttempt {
	if b := a.before; b != nil {
		a.analyzer.Learn(a.name, b.class, b.took, b.timedOut, !b.timedOut)
	}
	a.analyzer.Learn(a.name, a.start.Class, r.Duration, false, false)
	if a.start.Train == 0 {
		return nil
	}
	a.training, a.start = true, peer.Start{
		Class: a.start.Train, Timeout: a.analyzer.TrainingTimeout(a.name, a.start.Train, a.largest, a.own),
	}
	return a
}

func (a peerAttempt) failed(_ context.Context, f sizeclass.Failure) simAttempt {
	end := &peerEnd{a.start.Class, f.Run.Duration, f.Outcome == sizeclass.TimedOut}
	switch {
	case a.training:
		a.analyzer.Learn(a.name, end.class, end.took, end.timedOut, !end.timedOut)
		return nil
	case a.start.Class == a.largest:
		a.analyzer.Failed(a.name, f.Now)
		return nil
	}
	a.before, a.start = end, peer.Start{Class: a.largest, Timeout: a.own}
	return a
}

func (a peerAttempt) moved(uint32) simAttempt   { panic("sizes: the peer moves nothing") }
func (a peerAttempt) overdue(uint32) simAttempt { panic("sizes: nothing is overdue") }
func (a peerAttempt) abandoned()                {}
