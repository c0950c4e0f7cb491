package view

import (
	"iter"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
)

// A Condition is the state of a worker program, of all of its positions together.
type Condition uint8

const (
	// IsIdle: it has no action, and takes work.
	IsIdle Condition = iota
	// IsExecuting: it has an action.
	IsExecuting
	// IsDraining: it has an action, and gets no more.
	IsDraining
	// IsDrained: it has no action and gets none, because operators drained it.
	IsDrained
	// IsResting: it has no action and wants none for now.
	IsResting
	// IsAway: it got an action from an earlier scheduler, and has not called since.
	IsAway
	// IsSuspended: it has no action and gets none for a while, because its actions failed.
	IsSuspended
)

// ranked are the conditions in order of precedence: a program is executing if one of its positions
// is, and it rests only if all of its positions rest or are drained.
var ranked = [...]Condition{IsExecuting, IsDraining, IsAway, IsIdle, IsSuspended, IsResting, IsDrained}

// ConditionOf returns the condition of a program from those of its positions.
func ConditionOf(positions iter.Seq[Condition]) Condition {
	var found [len(ranked)]bool
	for c := range positions {
		found[c] = true
	}
	for _, c := range ranked {
		if found[c] {
			return c
		}
	}
	return IsIdle
}

// Workers are the numbers of workers of a queue as operators know them: programs, each with all of
// its positions.
type Workers struct {
	// Idle, Busy, Draining, Resting and Suspended are parts of All. Busy ones have an action.
	// Draining ones have been drained, or leave when their actions have ended.
	All, Idle, Busy, Draining, Resting, Suspended int
}

// Add counts a program.
func (n *Workers) Add(c Condition) {
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

// A Load is the load of a program.
type Load struct {
	// Positions is the number of its positions, Actions the number of those with an action.
	Positions, Actions int
	// Slots is how many commands it runs at once; 0: it does not report that.
	Slots int
	// Serves: it takes actions.
	Serves bool
}

// A Program is State's view of one worker program. It is a value.
type Program struct {
	// Worker is the key of one of its positions.
	Worker    string
	ID        map[string]string // without the position
	Prefix    string
	Platform  request.Platform
	SizeClass uint32
	Condition Condition
	Load      Load
	// Drained: operators have drained all of it.
	Drained bool
	// Standing is the program's trust. It is or was last suspended until Until, because Row
	// consecutive actions failed, and Failures of the last 16.
	Standing      trust.Standing
	Until         time.Time
	Row, Failures int
	// Address is the address from which it calls. Twin is the address of another process that uses
	// the same worker identity, and was last refused at Refused; empty if there is none.
	Address, Twin string
	Refused       time.Time
	// Positions are sorted by key.
	Positions []Position
}

// A Position is State's view of one position of a worker program. It is a value.
type Position struct {
	ID        map[string]string // read-only
	Condition Condition
	// Action is the action that it has been running since Since, or has not stopped yet; empty if
	// none.
	Action string
	Since  time.Time
}
