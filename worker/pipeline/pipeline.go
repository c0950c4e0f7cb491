package pipeline

import (
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/runner"
)

// A Pipeline limits how many actions are in each stage: input fetch, execute, report. An action
// holds a permit for exactly one stage, and gets the next permit before it releases the present
// one. So a full stage stops the stage before it and, in the end, the calls for work: no action is
// accepted without a Permit.
//
// Input fetch and report may have no permits of their own; their work is then done in the slot of
// the command.
type Pipeline struct {
	// Each channel holds the free permits of a stage, and has room for all.
	fetch, report chan struct{}
	slots         chan *Slot
	// inStage counts the actions in a stage, by Permit.stage.
	inStage *prometheus.GaugeVec

	mu sync.Mutex
	// idle has the permits with a slot that are kept for future actions. These may take long to
	// arrive: an action that runs its command again takes such a slot. added is closed when another
	// one is added; nil: nobody waits.
	idle  map[*Permit]struct{} // guarded by mu
	added chan struct{}        // guarded by mu
	// running holds the actions in the pipeline; a channel is closed when its
	// action has left.
	running map[digest.Digest]chan struct{} // guarded by mu
}

// A Slot runs one command at a time.
type Slot struct {
	Index int
	// Launcher starts the commands. The holder of the slot may replace it.
	Launcher *runner.Launcher
}

// New returns a pipeline with a slot for each launcher and so many permits in the other stages.
// inStage counts the actions in each of Stages.
func New(launchers []*runner.Launcher, fetch, report int, inStage *prometheus.GaugeVec) *Pipeline {
	p := &Pipeline{
		fetch:   permits(fetch),
		report:  permits(report),
		slots:   make(chan *Slot, len(launchers)),
		inStage: inStage,
		idle:    map[*Permit]struct{}{},
		running: map[digest.Digest]chan struct{}{},
	}
	for i, l := range launchers {
		p.slots <- &Slot{Index: i, Launcher: l}
	}
	return p
}

// permits returns n free permits; nil for none.
func permits(n int) chan struct{} {
	if n == 0 {
		return nil
	}
	c := make(chan struct{}, n)
	for range n {
		c <- struct{}{}
	}
	return c
}

// Size returns how many actions the pipeline can hold.
func (p *Pipeline) Size() int { return cap(p.fetch) + cap(p.slots) + cap(p.report) }

// Entrance returns the channels for an action's first permit, one of which is nil. A receiver of a
// value must call Kept.
func (p *Pipeline) Entrance() (fetch <-chan struct{}, slots <-chan *Slot) {
	if p.fetch == nil {
		return nil, p.slots
	}
	return p.fetch, nil
}

// Kept returns the permit for a value of Entrance; s is nil for one in the first stage.
func (p *Pipeline) Kept(s *Slot) *Permit {
	if s == nil {
		return &Permit{p: p, stage: stageFetch}
	}
	l := &Permit{p: p, stage: stageExecute, slot: s}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle[l] = struct{}{}
	if p.added != nil {
		close(p.added)
		p.added = nil
	}
	return l
}

// recall takes the slot away from a permit that no action has, if there is one. Else added is
// closed when it is worth another try.
func (p *Pipeline) recall() (s *Slot, added <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.idle {
		delete(p.idle, l)
		s, l.slot, l.stage = l.slot, nil, stageNone
		return s, nil
	}
	if p.added == nil {
		p.added = make(chan struct{})
	}
	return nil, p.added
}

// keep removes l from the permits for future actions. It reports false if its slot was recalled.
func (p *Pipeline) keep(l *Permit) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.idle, l)
	return l.stage != stageNone
}

// TryEnter returns a first permit, or nil if all are taken.
func (p *Pipeline) TryEnter() *Permit {
	fetch, slots := p.Entrance()
	select {
	case <-fetch:
		return p.Kept(nil)
	case s := <-slots:
		return p.Kept(s)
	default:
		return nil
	}
}

// Enter waits for a first permit, for an action that has come without one. All of these may be kept
// by positions that have no action, and may wait for one for ever: it takes a slot, too, even one
// that is kept.
func (p *Pipeline) Enter(ctx context.Context) (*Permit, error) {
	l := &Permit{p: p, stage: stageNone}
	if p.fetch == nil {
		if err := l.Again(ctx); err != nil {
			return nil, fmt.Errorf("wait to enter the pipeline: %w", ctx.Err())
		}
		return l, nil
	}
	select {
	case <-p.fetch:
		l.stage = stageFetch
		return l, nil
	case s := <-p.slots:
		l.stage, l.slot = stageExecute, s
		return l, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait to enter the pipeline: %w", ctx.Err())
	}
}

// Alone waits until no other run of the same action is in the pipeline; leave ends the caller's
// run. There can be two at once if a scheduler took the first one for lost.
func (p *Pipeline) Alone(ctx context.Context, d digest.Digest) (leave func(), err error) {
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

// The stages that have permits.
const (
	stageNone    = "" // of a permit that was left, or recalled
	stageFetch   = "fetch"
	stageExecute = "execute"
	stageReport  = "report"
)

// Stages are the names of the stages with permits.
var Stages = []string{stageFetch, stageExecute, stageReport}

// A Permit is an action's share of the pipeline. It is not safe for concurrent use.
type Permit struct {
	p     *Pipeline
	stage string
	slot  *Slot // while the stage is stageExecute
	// occupied: an action is in it; before, it is only kept for one.
	occupied bool
}

// Slot returns the action's slot, or nil.
func (l *Permit) Slot() *Slot {
	if l == nil || l.stage != stageExecute {
		return nil
	}
	return l.slot
}

// occupy assigns an action to the permit. It reports false, and does nothing, if the permit is no
// longer valid.
func (l *Permit) occupy() bool {
	if !l.p.keep(l) {
		return false
	}
	l.occupied = true
	l.p.inStage.WithLabelValues(l.stage).Inc()
	return true
}

// Begin is occupy that gets another slot if that of l was recalled. All slots may be kept by
// positions that have no action, and may wait for one for ever.
func (l *Permit) Begin(ctx context.Context) error {
	for !l.occupy() {
		if err := l.Again(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Vacate removes the action from the permit, which is kept for another one.
func (l *Permit) Vacate() {
	if l.occupied {
		l.occupied = false
		l.p.inStage.WithLabelValues(l.stage).Dec()
	}
}

// Execute waits for a slot, and moves there.
func (l *Permit) Execute(ctx context.Context) error {
	if l.stage == stageExecute {
		return nil
	}
	select {
	case s := <-l.p.slots:
		l.move(stageExecute, s)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a slot: %w", ctx.Err())
	}
}

// Report waits for a permit of the last stage, and moves there, so that the slot is free for the
// next command. If there are no such permits, the action stays in its slot.
func (l *Permit) Report(ctx context.Context) error {
	if l.p.report == nil {
		return nil
	}
	select {
	case <-l.p.report:
		l.move(stageReport, nil)
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait to report: %w", ctx.Err())
	}
}

// Again releases the permit, unless it is a slot, and waits for a slot.
func (l *Permit) Again(ctx context.Context) error {
	if l.stage == stageExecute {
		return nil
	}
	l.move(stageNone, nil)
	for {
		s, added := l.p.recall()
		if s != nil {
			l.move(stageExecute, s)
			return nil
		}
		select {
		case s := <-l.p.slots:
			l.move(stageExecute, s)
			return nil
		case <-added:
		case <-ctx.Done():
			return fmt.Errorf("wait for a slot to run the command again: %w", ctx.Err())
		}
	}
}

// Leave releases the permit.
func (l *Permit) Leave() {
	if l.p.keep(l) {
		l.move(stageNone, nil)
	}
}

func (l *Permit) move(stage string, s *Slot) {
	old, oldSlot := l.stage, l.slot
	l.stage, l.slot = stage, s
	if l.occupied {
		if old != stageNone {
			l.p.inStage.WithLabelValues(old).Dec()
		}
		if stage != stageNone {
			l.p.inStage.WithLabelValues(stage).Inc()
		}
	}
	switch old {
	case stageFetch:
		l.p.fetch <- struct{}{}
	case stageExecute:
		l.p.slots <- oldSlot
	case stageReport:
		l.p.report <- struct{}{}
	}
}
