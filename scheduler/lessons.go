package scheduler

import (
	"context"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

const (
	// maxLessons bounds what waits to be written. What is beyond is not learned.
	maxLessons = 4096
	// lessonsGrace is how long the end of a Server takes for what waits.
	lessonsGrace = 2 * time.Second
	// toolTimeout bounds how long an action waits for its program to be known.
	toolTimeout = time.Second
)

// lessons are what learns from the runs of one action.
type lessons struct {
	mu sync.Mutex
	// learner is that of the present run; nil when there is nothing more to learn.
	learner *sizeclass.Learner
}

// choose has an operation start on the size class that former runs speak for. Where there is
// only one, nothing is chosen, or learned.
func (s *Server) choose(ctx context.Context, storage Storage, op *core.Operation) {
	if s.options.Sizes == nil {
		return
	}
	s.mu.Lock()
	classes := sizesOf(s.state.View().SizeClasses(op))
	s.mu.Unlock()
	reduced := digest.OfReduced(op.Digest.Function(), op.Action)
	if len(classes) < 2 || classes[0].Size == 0 || reduced.IsZero() {
		if len(classes) > 0 {
			s.metrics.start(classes[len(classes)-1].Size)
		}
		return
	}
	s.learnTool(ctx, storage, op)
	c := conditions(classes)
	c.CanHedge = true
	choice, learner := s.options.Sizes.Analyze(ctx, similar(op, reduced)).Select(c)
	s.metrics.start(choice.Class)
	op.Size, op.Expected = sizeOf(choice, op.Action.GetTimeout().AsDuration()), choice.Expected
	addExtras(op).lessons = &lessons{learner: learner}
}

// learnTool finds out which program an action starts, unless that is known. It is a hint: where it
// cannot be read the worker says why, or finds nothing wrong.
func (s *Server) learnTool(ctx context.Context, storage Storage, op *core.Operation) {
	d, err := digest.FromProto(op.Digest.Function(), op.Action.GetCommandDigest())
	if extrasOf(op).tool != "" || err != nil {
		return
	}
	if tool := s.tools.get(d); tool != "" {
		addExtras(op).tool = tool
		return
	}
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	command := &repb.Command{}
	if err := read(ctx, storage, "command", d, command); err == nil && len(command.GetArguments()) > 0 {
		tool := command.GetArguments()[0]
		addExtras(op).tool = tool
		s.tools.put(d, tool)
	}
}

// similar is what is known of an operation by which former runs are found.
func similar(op *core.Operation, reduced digest.Digest) sizeclass.Action {
	return sizeclass.Action{
		Instance: op.Instance, Digest: op.Digest, Reduced: reduced, Timeout: op.Action.GetTimeout().AsDuration(),
		Mnemonic: op.Request.Mnemonic, Tool: extrasOf(op).tool, Platform: op.Platform.Key(),
	}
}

// conditions are those of a choice among classes.
func conditions(classes []sizeclass.Class) sizeclass.Conditions {
	return sizeclass.Conditions{Now: time.Now(), Classes: classes}
}

// learn takes the ends of runs. It does not wait.
func (s *Server) learn(ended []core.Ended) {
	for _, e := range ended {
		lesson := extrasOf(e.Operation).lessons.of(time.Now(), e)
		if lesson == nil {
			continue
		}
		select {
		case s.lessons <- lesson:
		default:
			s.log.Debug("too much to learn at once", zap.String("action", e.Digest.String()))
		}
	}
}

// of returns what the end of a run says, nil if nothing or not yet.
func (l *lessons) of(now time.Time, e core.Ended) *sizeclass.Lesson {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	learner := l.learner
	l.learner = nil
	if learner == nil {
		return nil
	}
	if e.Late {
		learner = learner.Overdue(e.Class)
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

// writeLessons writes what was learned until ctx ends, and then what is left.
func (s *Server) writeLessons(ctx context.Context) {
	for {
		select {
		case l := <-s.lessons:
			s.options.Sizes.Learn(context.WithoutCancel(ctx), l)
			continue
		case <-ctx.Done():
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lessonsGrace)
		defer cancel()
		for ctx.Err() == nil {
			select {
			case l := <-s.lessons:
				s.options.Sizes.Learn(ctx, l)
			default:
				return
			}
		}
		return
	}
}
