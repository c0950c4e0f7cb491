package core

import (
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/roster"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// leave undoes queue.join. The standing of a program without workers is forgotten.
func (d *dispatcher) leave(w *worker) {
	p := w.program
	if at, found := slices.BinarySearchFunc(p.positions, w, roster.Compare); found {
		p.positions = slices.Delete(p.positions, at, at+1)
	}
	if len(p.positions) == 0 {
		p.note((*trust.Record).Absolve)
		p.runsUnder("")
		d.Timers.Stop(&p.timer)
		delete(p.queue.programs, p.key)
	} else if p.tried == w {
		p.tried = nil
		d.reserve(p)
	}
	d.amnesty(p.queue)
}

// reserve makes each worker of a program take work, or none, by the standing of the program.
// Workers that may have work now get it when the event ends.
func (d *dispatcher) reserve(p *program) {
	for _, w := range p.positions {
		if p.withholds(w) {
			w.unidle() // leave a waiting call open: otherwise the worker would call again at once
		}
	}
	for _, w := range p.positions {
		if w.takes != Unreported {
			d.serve(w, !w.takes.isDrained(), w.takes.prefersIdle())
			d.calls.serves(w)
		}
	}
	d.reserved = append(d.reserved, p)
}

// offerReserved gives queued tasks to workers whose programs may have them since this event.
func (d *dispatcher) offerReserved() {
	for len(d.reserved) > 0 {
		p := d.reserved[0]
		d.reserved = d.reserved[1:]
		for _, w := range p.positions {
			if w.isHeld() && w.takes == Serving && !w.entry.Waits() {
				d.offer(w)
			}
		}
	}
	d.reserved = nil
}

// tries records that a worker has got an action: if its program is on trial, its other workers wait
// for the outcome.
func (d *dispatcher) tries(w *worker) {
	if w.queue.ill == 0 {
		return
	}
	if p := w.program; p.record.Standing() == trust.OnTrial && p.tried == nil {
		p.tried = w
		d.reserve(p)
	}
}

// trusts gives a program as much as it asks for.
func (d *dispatcher) trusts(p *program) {
	p.note((*trust.Record).Absolve)
	p.failed, p.tried = request.Key{}, nil
	d.Timers.Stop(&p.timer)
	d.reserve(p)
}

// amnesty trusts the programs of a queue that has no other ones left.
func (d *dispatcher) amnesty(q *queue) {
	if q.suspended == 0 || q.served() {
		return
	}
	var keys []string // few of many
	for key, p := range q.programs {
		if p.record.Standing() != trust.Trusted {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		d.trusts(q.programs[key])
	}
}

// probation suspends programs whose actions fail again and again for no fault of the actions.
type probation struct {
	*timer.Clock
	cfg      *tuning.Config
	dispatch *dispatcher
	tally    *view.Tally
	// suspensions belongs to the present event.
	suspensions *[]event.Suspension
}

// saysNothing reports whether a response says nothing about its worker; failed, whether the worker
// failed to run the action.
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
func (b *probation) ran(w *worker, a request.Key, failed bool) {
	if p := w.program; !failed || a != p.failed || p.tried == w { // the same action once more may be the action's fault
		b.count(p, p.tried == w, a, failed)
	}
}

// count counts a run; tried: it was a trial.
func (b *probation) count(p *program, tried bool, a request.Key, failed bool) {
	p.failed = request.Key{}
	if failed {
		p.failed = a
	}
	p.note(func(r *trust.Record) { r.Ran(failed) })
	switch {
	case tried && !failed:
		b.dispatch.trusts(p)
	case tried && p.peersAreWell(), p.record.Standing() == trust.Trusted &&
		p.record.IsSuspect(b.cfg.SuspendAfter) && p.peersAreWell():
		b.suspend(p)
	}
}

func (b *probation) suspend(p *program) {
	s := event.Suspension{Row: p.record.Row(), Failures: p.record.Failures(), Last: p.failed.String()}
	p.note(func(r *trust.Record) { s.Until = r.Suspend(b.Now) })
	p.tried = nil
	b.Timers.Set(&p.timer, s.Until)
	b.tally.Suspensions++
	s.ID = p.identity()
	*b.suspensions = append(*b.suspensions, s)
	b.dispatch.reserve(p)
}

// over ends a suspension: the program gets one action.
func (b *probation) over(p *program) {
	b.Timers.Stop(&p.timer)
	p.note(func(r *trust.Record) { r.Try(b.Now) })
	b.dispatch.reserve(p)
}

// called notes that a worker has called, and was dealt with: if it had the action of a trial and
// has it no longer, another one is tried.
func (b *probation) called(w *worker) {
	if w.queue.ill == 0 {
		return // nothing is on trial; w.program may be in no cache
	}
	if p := w.program; p.tried == w && w.task == nil {
		p.tried = nil
		b.dispatch.reserve(p)
	}
}

// restarted records that a worker has restarted. The actions that its program ran then count as one
// failure, because they may be the reason. If it is suspended it may have been repaired, which one
// action shows.
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
