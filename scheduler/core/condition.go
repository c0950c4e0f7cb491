package core

import (
	"time"

	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
)

// A Condition says what a program does: all of its positions together.
type Condition uint8

const (
	// IsIdle: it has nothing, and takes work.
	IsIdle Condition = iota
	// IsExecuting: it has an action.
	IsExecuting
	// IsDraining: it has an action, and gets no further one.
	IsDraining
	// IsDrained: it has nothing and gets nothing, because operators want it so.
	IsDrained
	// IsResting: it has nothing and wants nothing for now.
	IsResting
	// IsAway: it had an action before the State began, and has not called since.
	IsAway
	// IsSuspended: it has nothing and gets nothing for a while, because its actions failed.
	IsSuspended
)

// condition returns that of a worker alone.
func (w *worker) condition() Condition {
	serves := w.takes != Drained && w.takes != Resting
	switch busy := w.busy() != (action{}); {
	case w.duty == away:
		return IsAway
	case busy && serves:
		return IsExecuting
	case busy:
		return IsDraining
	case w.takes == Drained:
		return IsDrained
	case w.takes == Resting:
		return IsResting
	case w.takes == Suspended:
		return IsSuspended
	}
	return IsIdle
}

// ranked are the conditions in the order in which that of one position is that of its program: one that runs an action
// does so whatever the others do, and one rests only if all of its positions do, or are drained.
var ranked = [...]Condition{IsExecuting, IsDraining, IsAway, IsIdle, IsSuspended, IsResting, IsDrained}

// condition returns that of a program.
func (p *program) condition() Condition {
	var found [len(ranked)]bool
	for _, w := range p.positions {
		found[w.condition()] = true
	}
	for _, c := range ranked {
		if found[c] {
			return c
		}
	}
	return IsIdle
}

// Workers counts the workers of a queue as operators know them: programs, each with all of its positions.
type Workers struct {
	// Idle, Busy, Draining, Resting and Suspended are parts of All. Busy have an action, Draining have been drained, or leave
	// when their actions have ended.
	All, Idle, Busy, Draining, Resting, Suspended int
}

// add counts a program.
func (n *Workers) add(c Condition) {
	n.All++
	switch c {
	case IsIdle:
		n.Idle++
	case IsExecuting, IsAway:
		n.Busy++
	case IsDraining, IsDrained:
		n.Draining++
	case IsResting:
		n.Resting++
	case IsSuspended:
		n.Suspended++
	}
}

// Plus returns the sum of both.
func (n Workers) Plus(other Workers) Workers {
	return Workers{
		n.All + other.All, n.Idle + other.Idle, n.Busy + other.Busy, n.Draining + other.Draining, n.Resting + other.Resting,
		n.Suspended + other.Suspended,
	}
}

// A Load is how much a program has to do.
type Load struct {
	// Worker is the key of one of its positions.
	Worker string
	// Positions is how many it has, Actions how many of them have an action.
	Positions, Actions int
	// Serves: it gets what it asks for.
	Serves bool
}

// load returns that of a program.
func (p *program) load() Load {
	l := Load{Worker: p.positions[0].key, Positions: len(p.positions)}
	for _, w := range p.positions {
		l.Serves = l.Serves || w.takes == Serving
		if w.busy() != (action{}) {
			l.Actions++
		}
	}
	return l
}

// A ProgramView is what State knows of one program. It is a value.
type ProgramView struct {
	ID        map[string]string // less the position
	Prefix    string
	Platform  request.Platform
	SizeClass uint32
	Condition Condition
	Load      Load
	// Drained: operators have drained all of it.
	Drained bool
	// Standing is that of its program, which is suspended, or was last, until Until because Row
	// actions in a row failed, and Failures of the last 16.
	Standing      trust.Standing
	Until         time.Time
	Row, Failures int
	// Address is where it calls from. Twin is where another process calls from as the same worker, and was refused last
	// at Refused; empty: none.
	Address, Twin string
	Refused       time.Time
	// Positions are in the order of their keys.
	Positions []PositionView
}

// A PositionView is what State knows of one position of a program. It is a value.
type PositionView struct {
	ID        map[string]string // not to be changed
	Condition Condition
	// Action is what it runs since Since, or has not yet stopped; empty if nothing.
	Action string
	Since  time.Time
}

// Programs returns the key of each program of which p matches a worker, of each if it is nil, with that of one of its workers.
func (s *View) Programs(p *pattern.Pattern) map[string]string {
	list := map[string]string{}
	for _, w := range s.workers.byKey {
		if p != nil && !p.Match(w.attribute) {
			continue
		}
		key := w.program.key
		if w.pool.Prefix != "" {
			key = w.pool.Prefix + "/" + key
		}
		list[key] = w.key
	}
	return list
}

// Program returns what is known of the program of a worker; false if that is not known.
func (s *View) Program(worker string) (ProgramView, bool) {
	of, ok := s.workers.byKey[worker]
	if !ok {
		return ProgramView{}, false
	}
	p := of.program
	v := ProgramView{
		ID: p.identity(), Prefix: of.pool.Prefix, Platform: of.pool.Platform, SizeClass: of.queue.class,
		Condition: p.condition(), Load: p.load(), Drained: true,
		Standing: p.record.Standing(), Until: p.record.Until(), Row: p.record.Row(), Failures: p.record.Failures(),
	}
	for _, w := range p.positions {
		v.Drained = v.Drained && w.takes == Drained
		if v.Address == "" || w.refused.After(v.Refused) {
			v.Address, v.Twin, v.Refused = w.address, w.twin, w.refused
		}
		v.Positions = append(v.Positions, w.view())
	}
	return v, true
}

// view returns what is known of a worker alone.
func (w *worker) view() PositionView {
	v := PositionView{ID: w.id, Condition: w.condition(), Action: w.busy().String()}
	if w.task != nil {
		v.Since = w.task.started
	}
	return v
}

// staff counts the programs of a queue that take work, those of them that have room for more now, and those that are drained or suspended.
func (q *queue) staff() (serving, free, drained, suspended int) {
	for _, p := range q.programs {
		var has [Suspended + 1]bool
		room := false
		for _, w := range p.positions {
			has[w.takes] = true
			room = room || w.takes == Serving && w.busy() == (action{})
		}
		switch {
		case has[Serving]:
			serving++
			if room {
				free++
			}
		case has[Suspended]:
			suspended++
		case has[Drained]:
			drained++
		}
	}
	return serving, free, drained, suspended
}

// idlers counts the programs of a queue that wait for an action.
func (q *queue) idlers() (n int) {
	if q.pool.tree.Idle(q.class) == 0 {
		return 0
	}
	for _, p := range q.programs {
		for _, w := range p.positions {
			if w.entry.Waits() {
				n++
				break
			}
		}
	}
	return n
}
