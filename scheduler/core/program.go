package core

import (
	"maps"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
)

// A program is the workers of a queue whose identities differ in nothing but their position: they share a process, and a machine.
// Those of other makes have no position, and are a program each.
type program struct {
	key   string
	queue *queue
	// positions are its workers, in the order of their keys.
	positions []*worker
	// record is how their last runs ended.
	record trust.Record
	// failed is the action that failed last, if none has succeeded since.
	failed action
	// boot is its last start, as far as one was seen.
	boot string
	// tried has the one action while the program is on trial; nil: the next one to get one does.
	tried *worker
	// timer is the end of a suspension.
	timer timer.Timer
}

// join has a new worker belong to a program of its queue, made if need be.
func (q *queue) join(w *worker) {
	id := maps.Clone(w.id)
	delete(id, names.PositionKey)
	key := WorkerKey("", id)
	p := q.programs[key]
	if p == nil {
		p = &program{key: key, queue: q}
		p.timer.Owner = p
		if q.programs == nil {
			q.programs = map[string]*program{}
		}
		q.programs[key] = p
	}
	at, _ := slices.BinarySearchFunc(p.positions, w, byKey)
	p.positions = slices.Insert(p.positions, at, w)
	w.program = p
}

// leave undoes it. What became of a program that has no worker left is forgotten.
func (d *dispatcher) leave(w *worker) {
	p := w.program
	p.positions = slices.DeleteFunc(p.positions, func(x *worker) bool { return x == w })
	if len(p.positions) == 0 {
		p.note((*trust.Record).Absolve)
		d.timers.Stop(&p.timer)
		delete(p.queue.programs, p.key)
	} else if p.tried == w {
		p.tried = nil
		d.reserve(p)
	}
	d.amnesty(p.queue)
}

// note changes what is known of a program.
func (p *program) note(change func(*trust.Record)) {
	was := p.record.IsWell()
	change(&p.record)
	if is := p.record.IsWell(); was && !is {
		p.queue.ill++
	} else if !was && is {
		p.queue.ill--
	}
}

// withholds reports whether a worker of the program gets nothing.
func (p *program) withholds(w *worker) bool {
	switch p.record.Standing() {
	case trust.Suspended:
		return true
	case trust.OnTrial:
		return p.tried != nil && p.tried != w
	}
	return false
}

// peersAreWell reports whether most other programs of the queue do not fail, and one of them takes work.
func (p *program) peersAreWell() bool {
	peers, ill, own := len(p.queue.programs)-1, p.queue.ill, 0
	if !p.record.IsWell() {
		ill--
	}
	for _, w := range p.positions {
		if w.takes == serving {
			own++
		}
	}
	return 2*(peers-ill) > peers && p.queue.serving > own
}

// reserve has each worker of a program take work, or none, as the standing of the program says. Those that may have some now
// get it when the event ends.
func (d *dispatcher) reserve(p *program) {
	for _, w := range p.positions {
		if p.withholds(w) {
			w.unidle() // a call that is held stays so: the worker would come back at once
		}
	}
	for _, w := range p.positions {
		if w.takes != unheard {
			d.serve(w, w.takes != drained)
		}
	}
	d.reserved = append(d.reserved, p)
}

// offerReserved gives what waits to workers whose programs may have it since this event.
func (d *dispatcher) offerReserved() {
	for len(d.reserved) > 0 {
		p := d.reserved[0]
		d.reserved = d.reserved[1:]
		for _, w := range p.positions {
			if w.held && w.takes == serving && !w.entry.Waits() {
				d.offer(w)
			}
		}
	}
	d.reserved = nil
}

// tries notes that a worker has been given an action: if its program is on trial, its others wait for what becomes of that.
func (d *dispatcher) tries(w *worker) {
	if p := w.program; p.record.Standing() == trust.OnTrial && p.tried == nil {
		p.tried = w
		d.reserve(p)
	}
}

// trusts gives a program as much as it asks for.
func (d *dispatcher) trusts(p *program) {
	p.note((*trust.Record).Absolve)
	p.failed, p.tried = action{}, nil
	d.timers.Stop(&p.timer)
	d.reserve(p)
}

// amnesty trusts the programs of a queue that is left with nobody else.
func (d *dispatcher) amnesty(q *queue) {
	if q.suspended == 0 || q.served() {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(q.programs)) {
		if p := q.programs[key]; p.record.Standing() != trust.Trusted {
			d.trusts(p)
		}
	}
}

// identity is what the workers of a program have in common.
func (p *program) identity() map[string]string {
	id := maps.Clone(p.positions[0].id)
	delete(id, names.PositionKey)
	return id
}

// Suspects returns what the workers of each program that is suspended or on trial have in common, of at most so many, in their
// order.
func (s *View) Suspects(atMost int) (ids []map[string]string) {
	for _, p := range s.dispatch.sortedPools() {
		for _, q := range p.queues {
			if q.ill == 0 {
				continue
			}
			for _, key := range slices.Sorted(maps.Keys(q.programs)) {
				if p := q.programs[key]; p.record.Standing() != trust.Trusted && len(ids) < atMost {
					ids = append(ids, p.identity())
				}
			}
		}
	}
	return ids
}

// probation suspends programs whose actions fail again and again for no fault of their own.
type probation struct {
	*clock
	cfg      *Config
	dispatch *dispatcher
	tally    *Tally
	// suspensions are those of the present event.
	suspensions *[]event.Suspension
}

// saysNothing reports whether a response says nothing of the worker that it comes from; failed, that what it had to do for the
// action failed.
func saysNothing(code codes.Code) (nothing, failed bool) {
	switch code {
	case codes.OK:
		return false, false
	case codes.Internal, codes.Unavailable, codes.Unknown, codes.DataLoss:
		return false, true
	}
	return true, false
}

// ran takes how a run of a worker ended, while it still has its task.
func (b *probation) ran(w *worker, a action, failed bool) {
	if p := w.program; !failed || a != p.failed || p.tried == w { // the same action once more may be the action's fault
		b.count(p, p.tried == w, a, failed)
	}
}

// count counts a run; tried: it was a trial.
func (b *probation) count(p *program, tried bool, a action, failed bool) {
	p.failed = action{}
	if failed {
		p.failed = a
	}
	p.note(func(r *trust.Record) { r.Ran(failed) })
	switch {
	case tried && !failed:
		b.dispatch.trusts(p)
	case tried && p.peersAreWell(), p.record.Standing() == trust.Trusted && p.record.IsSuspect(b.cfg.SuspendAfter) && p.peersAreWell():
		b.suspend(p)
	}
}

func (b *probation) suspend(p *program) {
	s := event.Suspension{Row: p.record.Row(), Failures: p.record.Failures(), Last: p.failed.String()}
	p.note(func(r *trust.Record) { s.Until = r.Suspend(b.now) })
	p.tried = nil
	b.timers.Set(&p.timer, s.Until)
	b.tally.Suspensions++
	s.ID = p.identity()
	*b.suspensions = append(*b.suspensions, s)
	b.dispatch.reserve(p)
}

// over ends a suspension: the program gets one action.
func (b *probation) over(p *program) {
	b.timers.Stop(&p.timer)
	p.note(func(r *trust.Record) { r.Try(b.now) })
	b.dispatch.reserve(p)
}

// called notes that a worker has called, and was dealt with: if it had the action of a trial and has it no longer, another one is
// tried.
func (b *probation) called(w *worker) {
	if p := w.program; p.tried == w && w.task == nil {
		p.tried = nil
		b.dispatch.reserve(p)
	}
}

// restarted notes that a worker has started anew. Whatever its program ran then counts as one failure: it may be why it ended. If
// it is suspended somebody may have repaired it, which one action shows.
func (b *probation) restarted(w *worker, boot string) {
	p := w.program
	if boot == "" || p.boot == boot {
		return
	}
	p.boot = boot
	if p.record.Standing() == trust.Suspended {
		b.over(p)
		return
	}
	for _, x := range p.positions {
		if x.task != nil && x.duty == confirmed {
			b.count(p, p.tried == x, x.task.action, true)
			return
		}
	}
}

// drops reports whether a worker says, without having ended it, that it no longer has the task that it had.
func (w *worker) drops(r *event.Report) bool {
	return w.task != nil && w.duty == confirmed && w.task.wanted() &&
		(r.Doing == event.Idle || actionOf(r.Action) != w.task.action)
}
