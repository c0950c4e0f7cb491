package scheduler

import (
	"context"
	"strconv"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
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

// learning chooses size classes by former runs, and learns from those that end. It does nothing without sizes.
type learning struct {
	*engine
	sizes  *sizeclass.Analyzer
	chosen *prometheus.CounterVec
	log    *zap.Logger
	tools  tools
	// waiting is what was learned and is to be written.
	waiting chan *sizeclass.Lesson
}

// choose has an operation start on the size class that former runs speak for. Where there is
// only one, nothing is chosen, or learned.
func (s *learning) choose(ctx context.Context, storage Storage, op *core.Operation) {
	if s.sizes == nil {
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
	s.learnTool(ctx, storage, op)
	c := conditions(classes)
	c.CanHedge = true
	choice, learner := s.sizes.Analyze(ctx, similar(op, reduced)).Select(c)
	s.start(choice.Class)
	op.Size, op.Expected = sizeOf(choice, op.Action.GetTimeout().AsDuration()), choice.Expected
	addExtras(op).lessons = &lessons{learner: learner}
}

// classes are those on which an operation could run, on whatever platform if that is not known.
func (s *learning) classes(op *core.Operation, anyPlatform bool) []sizeclass.Class {
	var known []core.SizeClass
	s.look(func(v *core.View) {
		if anyPlatform {
			known = v.AllSizeClasses(op.Instance)
		} else {
			known = v.SizeClasses(op)
		}
	})
	return sizesOf(known)
}

// start counts an action that is to start on a size class.
func (s *learning) start(class uint32) {
	s.chosen.WithLabelValues(strconv.FormatUint(uint64(class), 10)).Inc()
}

// learnTool finds out which program an action starts, unless that is known. It is a hint: where it
// cannot be read the worker says why, or finds nothing wrong.
func (s *learning) learnTool(ctx context.Context, storage Storage, op *core.Operation) {
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
func (s *learning) learn(ended []core.Ended) {
	for _, e := range ended {
		lesson := extrasOf(e.Operation).lessons.of(time.Now(), e)
		if lesson == nil {
			continue
		}
		select {
		case s.waiting <- lesson:
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

// write writes what was learned until ctx ends, and then what is left.
func (s *learning) write(ctx context.Context) {
	for {
		select {
		case l := <-s.waiting:
			s.sizes.Learn(context.WithoutCancel(ctx), l)
			continue
		case <-ctx.Done():
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lessonsGrace)
		defer cancel()
		for ctx.Err() == nil {
			select {
			case l := <-s.waiting:
				s.sizes.Learn(ctx, l)
			default:
				return
			}
		}
		return
	}
}
