package pipeline

import (
	"context"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/runner"
)

// A Pipeline bounds how many actions are in each stage: input fetch, execute,
// report. An action has a place in exactly one stage, and gets one in the next
// before it gives up its own. So a stage that is full holds up the one before
// it and, in the end, the calls for work: nothing is accepted that has no Place.
//
// Input fetch and report may have no places of their own; what belongs to them
// is then done in the slot that the command runs in.
type Pipeline struct {
	// Each channel holds the free places of a stage, and has room for all.
	fetch, report chan struct{}
	slots         chan *Slot
	// inStage counts the actions in a stage, by Place.stage.
	inStage *prometheus.GaugeVec

	mu sync.Mutex
	// idle has the places with a slot that are kept for an action to come. Such an action may be long in
	// coming: who has to run a command again takes the slot away. added is closed when there is another one;
	// nil: nobody waits.
	idle  map[*Place]struct{} // guarded by mu
	added chan struct{}       // guarded by mu
	// running holds the actions in the pipeline; a channel is closed when its
	// action has left.
	running map[digest.Digest]chan struct{} // guarded by mu
}

// A Slot is where commands run, one at a time.
type Slot struct {
	Index int
	// Launcher starts the commands. Who has the slot may replace it.
	Launcher *runner.Launcher
}

// New returns a pipeline with a slot for each launcher and so many places in the other stages.
// inStage counts the actions in each of Stages.
func New(launchers []*runner.Launcher, fetch, report int, inStage *prometheus.GaugeVec) *Pipeline {
	p := &Pipeline{
		fetch:   places(fetch),
		report:  places(report),
		slots:   make(chan *Slot, len(launchers)),
		inStage: inStage,
		idle:    map[*Place]struct{}{},
		running: map[digest.Digest]chan struct{}{},
	}
	for i, l := range launchers {
		p.slots <- &Slot{Index: i, Launcher: l}
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

// Size is how many actions the pipeline can hold.
func (p *Pipeline) Size() int { return cap(p.fetch) + cap(p.slots) + cap(p.report) }

// Entrance returns where the first place of an action comes from, one of which
// is nil. Who takes a value from it calls Kept.
func (p *Pipeline) Entrance() (fetch <-chan struct{}, slots <-chan *Slot) {
	if p.fetch == nil {
		return nil, p.slots
	}
	return p.fetch, nil
}

// Kept returns the place that a value of Entrance stands for; s is nil for one
// in the first stage.
func (p *Pipeline) Kept(s *Slot) *Place {
	if s == nil {
		return &Place{p: p, stage: placeFetch}
	}
	l := &Place{p: p, stage: placeSlot, slot: s}
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
func (p *Pipeline) recall() (s *Slot, added <-chan struct{}) {
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
func (p *Pipeline) keep(l *Place) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.idle, l)
	return l.stage != placeNone
}

// TryEnter returns a place to begin at, or nil if all are taken.
func (p *Pipeline) TryEnter() *Place {
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

// Enter is TryEnter that waits.
func (p *Pipeline) Enter(ctx context.Context) (*Place, error) {
	fetch, slots := p.Entrance()
	select {
	case <-fetch:
		return p.Kept(nil), nil
	case s := <-slots:
		return p.Kept(s), nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a place in the pipeline: %w", ctx.Err())
	}
}

// Alone returns when no other run of the same action is in the pipeline; leave
// ends that. Two are there at once when a scheduler took the first for lost.
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

// The stages that have places.
const (
	placeNone   = "" // of a place that was left, or recalled
	placeFetch  = "fetch"
	placeSlot   = "execute"
	placeReport = "report"
)

// Stages are the names of those that have places.
var Stages = []string{placeFetch, placeSlot, placeReport}

// A Place is what one action holds of the pipeline. It is not safe for
// concurrent use.
type Place struct {
	p     *Pipeline
	stage string
	slot  *Slot // while the stage is placeSlot
	// occupied: an action is in it; before, it is only kept for one.
	occupied bool
}

// Slot is the one that the action has, or nil.
func (l *Place) Slot() *Slot {
	if l == nil || l.stage != placeSlot {
		return nil
	}
	return l.slot
}

// occupy says that there is an action now. It reports false, and does nothing, if the place is
// none any more.
func (l *Place) occupy() bool {
	if !l.p.keep(l) {
		return false
	}
	l.occupied = true
	l.p.inStage.WithLabelValues(l.stage).Inc()
	return true
}

// Begin is occupy that gets another slot if that of l was recalled. All slots may be kept by positions
// that have no action, and may wait for one for ever.
func (l *Place) Begin(ctx context.Context) error {
	for !l.occupy() {
		if err := l.Again(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Vacate says that there is no action any more. The place is kept for another one.
func (l *Place) Vacate() {
	if l.occupied {
		l.occupied = false
		l.p.inStage.WithLabelValues(l.stage).Dec()
	}
}

// Execute waits for a slot, and moves there.
func (l *Place) Execute(ctx context.Context) error {
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

// Report waits for a place in the last stage, and moves there: the slot is free
// for the next command. Without such places the action stays.
func (l *Place) Report(ctx context.Context) error {
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

// Again gives the place up unless it is a slot, and waits for one.
func (l *Place) Again(ctx context.Context) error {
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

// Leave gives the place up.
func (l *Place) Leave() {
	if l.p.keep(l) {
		l.move(placeNone, nil)
	}
}

func (l *Place) move(stage string, s *Slot) {
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
