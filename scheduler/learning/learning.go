package learning

import (
	"context"
	"strconv"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/records/kind"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
	"github.com/forerunner-build/forerunner/scheduler/engine"
	"github.com/forerunner-build/forerunner/scheduler/operation"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

const (
	// maxLessons limits unwritten lessons. Further ones are dropped.
	maxLessons = 4096
	// lessonsGrace is how long the end of a Server waits for unwritten lessons.
	lessonsGrace = 2 * time.Second
	// programTimeout bounds how long an action waits for its program to be known.
	programTimeout = time.Second
)

// lessons learns from the runs of one action.
type lessons struct {
	mu sync.Mutex
	// learner is the learner of the present run; nil when there is nothing more to learn.
	learner *sizeclass.Learner
}

// Options configure Learning. All but Sizes and Chosen are required; without Sizes it does nothing.
type Options struct {
	Engine *engine.Engine
	Sizes  *sizeclass.Analyzer
	// Chosen counts actions by their first size class.
	Chosen *prometheus.CounterVec
	Log    *zap.Logger
}

// Learning chooses size classes from earlier runs, and learns from new ones.
type Learning struct {
	options  Options
	programs *programs
	// waiting has lessons that are not written yet.
	waiting chan *sizeclass.Lesson
}

// New returns a Learning.
func New(o Options) *Learning {
	return &Learning{options: o, programs: newPrograms(), waiting: make(chan *sizeclass.Lesson, maxLessons)}
}

// Choose sets the size class of an operation from earlier runs. With only one class, it chooses and
// learns nothing.
func (s *Learning) Choose(ctx context.Context, storage operation.Storage, op *request.Operation) {
	if s.options.Sizes == nil {
		return
	}
	classes := s.classes(op, false)
	reduced := digest.OfReduced(op.Digest.Function(), op.Action)
	if len(classes) < 2 || classes[0].Size == 0 || reduced.IsZero() {
		if len(classes) > 0 {
			s.start(classes[len(classes)-1].Size)
		}
		return
	}
	s.learnProgram(ctx, storage, op)
	c := conditions(classes)
	c.CanHedge = true
	choice, learner := s.options.Sizes.Analyze(ctx, similar(op, reduced)).Select(c)
	s.start(choice.Class)
	op.Size, op.Expected = sizeOf(choice, op.Action.GetTimeout().AsDuration()), choice.Expected
	operation.AddExtras(op).Learn = (&lessons{learner: learner}).of
}

// classes are the possible classes of an operation, of all platforms if its platform is unknown.
func (s *Learning) classes(op *request.Operation, anyPlatform bool) []sizeclass.Class {
	var known []view.SizeClass
	s.options.Engine.Look(func(v *core.View) {
		if anyPlatform {
			known = v.AllSizeClasses(op.Instance)
		} else {
			known = v.SizeClasses(op)
		}
	})
	return sizesOf(known)
}

// start counts an action by its first size class.
func (s *Learning) start(class uint32) {
	s.options.Chosen.WithLabelValues(strconv.FormatUint(uint64(class), 10)).Inc()
}

// learnProgram finds the program of an action, unless it is known. It is a hint: if the command
// cannot be read, the worker reports the reason, or can read it.
func (s *Learning) learnProgram(ctx context.Context, storage operation.Storage, op *request.Operation) {
	d, err := digest.FromProto(op.Digest.Function(), op.Action.GetCommandDigest())
	if operation.ExtrasOf(op).Tool != "" || err != nil {
		return
	}
	if tool := s.programs.get(d); tool != "" {
		operation.AddExtras(op).Tool = tool
		return
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	command := &repb.Command{}
	if err := operation.Read(ctx, storage, "command", d, command); err == nil && len(command.GetArguments()) > 0 {
		tool := kind.ToolOf(command.GetArguments())
		operation.AddExtras(op).Tool = tool
		s.programs.put(d, tool)
	}
}

// similar returns the properties of an operation that identify earlier runs.
func similar(op *request.Operation, reduced digest.Digest) sizeclass.Action {
	return sizeclass.Action{
		Instance: op.Instance, Digest: op.Digest, Reduced: reduced, Timeout: op.Action.GetTimeout().AsDuration(),
		Kind: kind.Kind{
			Mnemonic: op.Request.Mnemonic, Tool: operation.ExtrasOf(op).Tool, Platform: op.Platform.Key(),
			Configuration: op.Request.Configuration,
		},
	}
}

// conditions returns the conditions of a choice among classes.
func conditions(classes []sizeclass.Class) sizeclass.Conditions {
	return sizeclass.Conditions{Now: time.Now(), Classes: classes}
}

// Learn processes the ends of runs. It does not wait.
func (s *Learning) Learn(ended []event.Ended) {
	for _, e := range ended {
		of := operation.ExtrasOf(e.Operation).Learn
		if of == nil {
			continue
		}
		lesson := of(time.Now(), e)
		if lesson == nil {
			continue
		}
		select {
		case s.waiting <- lesson:
		default:
			s.options.Log.Debug("too much to learn at once", zap.String("action", e.Digest.String()))
		}
	}
}

// of returns the lesson of a run's end, nil if there is none or not yet.
func (l *lessons) of(now time.Time, e event.Ended) *sizeclass.Lesson {
	l.mu.Lock()
	defer l.mu.Unlock()
	learner := l.learner
	l.learner = nil
	if learner == nil {
		return nil
	}
	switch {
	case e.Late:
		learner = learner.Overdue(e.Class)
	case e.Class > learner.Choice().Class:
		learner = learner.Moved(e.Class) // no worker of the smaller one was free
	}
	run, outcome, ok := sizeclass.ResultOf(e.Response)
	switch {
	case !ok || learner.Choice().Class != e.Class || e.Again && e.Largest == e.Class:
		learner.Abandoned()
		return nil
	case outcome == sizeclass.Succeeded:
		return learner.Succeeded(run)
	}
	f := sizeclass.Failure{Now: now, Outcome: outcome, Run: run, Largest: e.Class}
	if e.Again {
		f.Largest = e.Largest
	}
	verdict := learner.Failed(f)
	l.learner = verdict.Retry
	return verdict.Lesson
}

// Write writes lessons until ctx ends, and then the remaining ones.
func (s *Learning) Write(ctx context.Context) {
	for {
		select {
		case l := <-s.waiting:
			s.options.Sizes.Learn(context.WithoutCancel(ctx), l)
			continue
		case <-ctx.Done():
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lessonsGrace)
		defer cancel()
		for ctx.Err() == nil {
			select {
			case l := <-s.waiting:
				s.options.Sizes.Learn(ctx, l)
			default:
				return
			}
		}
		return
	}
}

// sizeOf returns a choice for an action with a timeout of its own.
func sizeOf(c sizeclass.Choice, own time.Duration) request.Size {
	s := request.Size{Class: c.Class, Expected: c.Expected, Reason: c.Reason}
	switch {
	case c.Hedge > 0:
		s.Timeout, s.Hedge = c.Hedge, true
	case c.Timeout < own:
		s.Timeout = c.Timeout
	}
	return s
}

// sizesOf returns the classes of the core as candidates of the choice.
func sizesOf(classes []view.SizeClass) []sizeclass.Class {
	sizes := make([]sizeclass.Class, len(classes))
	for i, c := range classes {
		sizes[i] = sizeclass.Class(c)
	}
	return sizes
}
