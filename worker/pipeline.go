package worker

import (
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/runner"
)

// A pipeline bounds how many actions are in each stage: input fetch, execute,
// report. An action has a place in exactly one stage, and gets one in the next
// before it gives up its own. So a stage that is full holds up the one before
// it and, in the end, the calls for work: nothing is accepted that has no place.
//
// Input fetch and report may have no places of their own; what belongs to them
// is then done in the slot that the command runs in.
type pipeline struct {
	// Each channel holds the free places of a stage, and has room for all.
	fetch, report chan struct{}
	slots         chan *slot
	// inStage counts the actions in a stage, by place.stage.
	inStage *prometheus.GaugeVec

	mu sync.Mutex
	// idle has the places with a slot that are kept for an action to come. Such an action may be long in
	// coming: who has to run a command again takes the slot away. added is closed when there is another one;
	// nil: nobody waits.
	idle  map[*place]struct{} // guarded by mu
	added chan struct{}       // guarded by mu
	// running holds the actions in the pipeline; a channel is closed when its
	// action has left.
	running map[digest.Digest]chan struct{} // guarded by mu
}

// A slot is where commands run, one at a time.
type slot struct {
	index    int
	launcher *runner.Launcher
}

func newPipeline(o *Options, inStage *prometheus.GaugeVec) *pipeline {
	p := &pipeline{
		fetch:   places(o.FetchWidth),
		report:  places(o.ReportWidth),
		slots:   make(chan *slot, len(o.Launchers)),
		inStage: inStage,
		idle:    map[*place]struct{}{},
		running: map[digest.Digest]chan struct{}{},
	}
	for i, l := range o.Launchers {
		p.slots <- &slot{index: i, launcher: l}
	}
	return p
}

// places returns n free places; nil for none.
func places(n int) chan struct{} {
	if n == 0 {
		return nil
	}
	c := make(chan struct{}, n)
	for range n {
		c <- struct{}{}
	}
	return c
}

// size is how many actions the pipeline can hold.
func (p *pipeline) size() int { return cap(p.fetch) + cap(p.slots) + cap(p.report) }

// entrance returns where the first place of an action comes from, one of which
// is nil. Who takes a value from it calls kept.
func (p *pipeline) entrance() (fetch <-chan struct{}, slots <-chan *slot) {
	if p.fetch == nil {
		return nil, p.slots
	}
	return p.fetch, nil
}

// kept returns the place that a value of entrance stands for; s is nil for one
// in the first stage.
func (p *pipeline) kept(s *slot) *place {
	if s == nil {
		return &place{p: p, stage: placeFetch}
	}
	l := &place{p: p, stage: placeSlot, slot: s}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle[l] = struct{}{}
	if p.added != nil {
		close(p.added)
		p.added = nil
	}
	return l
}

// recall takes the slot away from a place that no action has, if there is one. Else added is closed
// when it is worth another try.
func (p *pipeline) recall() (s *slot, added <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.idle {
		delete(p.idle, l)
		s, l.slot, l.stage = l.slot, nil, placeNone
		return s, nil
	}
	if p.added == nil {
		p.added = make(chan struct{})
	}
	return nil, p.added
}

// keep says that l is not for an action to come any more. It reports false if its slot was recalled.
func (p *pipeline) keep(l *place) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.idle, l)
	return l.stage != placeNone
}

// tryEnter returns a place to begin at, or nil if all are taken.
func (p *pipeline) tryEnter() *place {
	fetch, slots := p.entrance()
	select {
	case <-fetch:
		return p.kept(nil)
	case s := <-slots:
		return p.kept(s)
	default:
		return nil
	}
}

// enter is tryEnter that waits.
func (p *pipeline) enter(ctx context.Context) (*place, error) {
	fetch, slots := p.entrance()
	select {
	case <-fetch:
		return p.kept(nil), nil
	case s := <-slots:
		return p.kept(s), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a place in the pipeline: %w", ctx.Err())
	}
}

// alone returns when no other run of the same action is in the pipeline; leave
// ends that. Two are there at once when a scheduler took the first for lost.
func (p *pipeline) alone(ctx context.Context, d digest.Digest) (leave func(), err error) {
	for {
		p.mu.Lock()
		other, found := p.running[d]
		if !found {
			left := make(chan struct{})
			p.running[d] = left
			p.mu.Unlock()
			return func() {
				p.mu.Lock()
				delete(p.running, d)
				p.mu.Unlock()
				close(left)
			}, nil
		}
		p.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another run of action %s: %w", d, ctx.Err())
		}
	}
}

// The stages that have places.
const (
	placeNone   = "" // of a place that was left, or recalled
	placeFetch  = "fetch"
	placeSlot   = "execute"
	placeReport = "report"
)

// A place is what one action holds of the pipeline. It is not safe for
// concurrent use.
type place struct {
	p     *pipeline
	stage string
	slot  *slot // while the stage is placeSlot
	// occupied: an action is in it; before, it is only kept for one.
	occupied bool
}

// occupy says that there is an action now. It reports false, and does nothing, if the place is
// none any more.
func (l *place) occupy() bool {
	if !l.p.keep(l) {
		return false
	}
	l.occupied = true
	l.p.inStage.WithLabelValues(l.stage).Inc()
	return true
}

// begin is occupy that gets another slot if that of l was recalled. All slots may be kept by positions
// that have no action, and may wait for one for ever.
func (l *place) begin(ctx context.Context) error {
	for !l.occupy() {
		if err := l.again(ctx); err != nil {
			return err
		}
	}
	return nil
}

// vacate says that there is no action any more. The place is kept for another one.
func (l *place) vacate() {
	if l.occupied {
		l.occupied = false
		l.p.inStage.WithLabelValues(l.stage).Dec()
	}
}

// execute waits for a slot, and moves there.
func (l *place) execute(ctx context.Context) error {
	if l.stage == placeSlot {
		return nil
	}
	select {
	case s := <-l.p.slots:
		l.move(placeSlot, s)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a slot: %w", ctx.Err())
	}
}

// report waits for a place in the last stage, and moves there: the slot is free
// for the next command. Without such places the action stays.
func (l *place) report(ctx context.Context) error {
	if l.p.report == nil {
		return nil
	}
	select {
	case <-l.p.report:
		l.move(placeReport, nil)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a place to report from: %w", ctx.Err())
	}
}

// again gives the place up unless it is a slot, and waits for one.
func (l *place) again(ctx context.Context) error {
	if l.stage == placeSlot {
		return nil
	}
	l.move(placeNone, nil)
	for {
		s, added := l.p.recall()
		if s != nil {
			l.move(placeSlot, s)
			return nil
		}
		select {
		case s := <-l.p.slots:
			l.move(placeSlot, s)
			return nil
		case <-added:
		case <-ctx.Done():
			return fmt.Errorf("wait for a slot to run the command again: %w", ctx.Err())
		}
	}
}

// leave gives the place up.
func (l *place) leave() {
	if l.p.keep(l) {
		l.move(placeNone, nil)
	}
}

func (l *place) move(stage string, s *slot) {
	old, oldSlot := l.stage, l.slot
	l.stage, l.slot = stage, s
	if l.occupied {
		if old != placeNone {
			l.p.inStage.WithLabelValues(old).Dec()
		}
		if stage != placeNone {
			l.p.inStage.WithLabelValues(stage).Inc()
		}
	}
	switch old {
	case placeFetch:
		l.p.fetch <- struct{}{}
	case placeSlot:
		l.p.slots <- oldSlot
	case placeReport:
		l.p.report <- struct{}{}
	}
}
