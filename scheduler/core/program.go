package core

import (
	"slices"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/roster"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// A program is the workers of a queue whose identities differ only in their position: they share a
// process, and a machine. Other workers have no position, and are a program each.
type program struct {
	key   string
	queue *queue
	// positions are its workers, in the order of their keys.
	positions []*worker
	// record is how their last runs ended.
	record trust.Record
	// failed is the action that failed last, if none has succeeded since.
	failed request.Key
	// circumstances are those of the last report; empty: it reuses no runs.
	circumstances string
	// slots is how many commands it runs at once, as last reported; 0: it is unknown.
	slots int
	// boot is its last start, as far as one was seen.
	boot string
	// tried has the one action while the program is on trial; nil: the next one to get one does.
	tried *worker
	// timer is the end of a suspension.
	timer timer.Timer
}

// runsUnder notes the circumstances of the last report.
func (p *program) runsUnder(circumstances string) {
	p.queue.alike.Move(p, p.circumstances, circumstances)
	p.circumstances = circumstances
}

// join has a new worker belong to a program of its queue, made if need be.
func (q *queue) join(w *worker) {
	key := names.WorkerKey("", names.WithoutPosition(w.ID))
	p := q.programs[key]
	if p == nil {
		p = &program{key: key, queue: q}
		p.timer.Owner = p
		if q.programs == nil {
			q.programs = map[string]*program{}
		}
		q.programs[key] = p
	}
	at, _ := slices.BinarySearchFunc(p.positions, w, roster.Compare)
	p.positions = slices.Insert(p.positions, at, w)
	w.program = p
}

// note updates the state of a program.
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

// peersAreWell reports whether most other programs of the queue do not fail, and one of them takes
// work.
func (p *program) peersAreWell() bool {
	peers, ill := len(p.queue.programs)-1, p.queue.ill
	if !p.record.IsWell() {
		ill--
	}
	return 2*(peers-ill) > peers && p.hasPeers()
}

// willing returns the idle worker of a queue that is nearest to a task that does not avoid it; nil
// if there is none.
func (q *queue) willing(t *task) (found *worker) {
	var avoided []*worker
	for near := q.pool.tree.Nearest(&t.item, q.class); near != nil; near = q.pool.tree.Nearest(&t.item, q.class) {
		w := near.Owner.(*worker)
		if !t.avoidsProgram(w.program) {
			found = w
			break
		}
		w.unidle()
		avoided = append(avoided, w)
	}
	for _, x := range avoided {
		x.idle()
	}
	return found
}

// avoidedBy returns the idle workers of a queue that a task avoids.
func (q *queue) avoidedBy(t *task) (idle []*worker) {
	if !t.avoids() {
		return nil
	}
	p := q.programs[t.past.failed]
	if p == nil {
		return nil
	}
	for _, w := range p.positions {
		if w.entry.Waits() {
			idle = append(idle, w)
		}
	}
	return idle
}

// onlyIdle returns the key of the only program with idle workers of a queue; empty: there is none,
// or another one.
func (q *queue) onlyIdle() string {
	some := q.pool.tree.AnyIdle(q.class)
	if some == nil {
		return ""
	}
	p, idle := some.Owner.(*worker).program, 0
	for _, w := range p.positions {
		if w.entry.Waits() {
			idle++
		}
	}
	if idle < q.pool.tree.Idle(q.class) {
		return ""
	}
	return p.key
}

// serving counts the workers of the program that take work.
func (p *program) serving() (n int) {
	for _, w := range p.positions {
		if w.takes == Serving {
			n++
		}
	}
	return n
}

// hasPeers reports whether a worker of another program of the queue takes work.
func (p *program) hasPeers() bool { return p.queue.isServedBeside(p.key) }

// isServedBeside reports whether a worker of another program than that of a key takes work of a
// queue.
func (q *queue) isServedBeside(key string) bool {
	if p := q.programs[key]; p != nil {
		return q.serving > p.serving()
	}
	return q.served()
}

// identity is the common part of the identities of a program's workers.
func (p *program) identity() map[string]string { return names.WithoutPosition(p.positions[0].ID) }

// drops reports whether a worker's report lacks its task, although the worker has not reported its
// end.
func (w *worker) drops(r *event.Report) bool {
	return w.task != nil && w.duty == confirmed && w.task.wanted() &&
		(r.Doing == event.Idle || w.ran(r) != w.task.ran())
}

// condition returns the condition of a program.
func (p *program) condition() view.Condition {
	return view.ConditionOf(func(yield func(view.Condition) bool) {
		for _, w := range p.positions {
			if !yield(w.condition()) {
				return
			}
		}
	})
}

// load returns the load of a program.
func (p *program) load() view.Load {
	l := view.Load{Positions: len(p.positions), Slots: p.slots}
	for _, w := range p.positions {
		l.Serves = l.Serves || w.takes == Serving
		if w.busy() != (request.Key{}) {
			l.Actions++
		}
	}
	return l
}
