package view

import (
	"iter"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/trust"
)

// A Condition is the state of a program: of all of its positions together.
type Condition uint8

const (
	// IsIdle: it has nothing, and takes work.
	IsIdle Condition = iota
	// IsExecuting: it has an action.
	IsExecuting
	// IsDraining: it has an action, and gets no further one.
	IsDraining
	// IsDrained: it has no action and gets none, because operators drained it.
	IsDrained
	// IsResting: it has no action and wants none for now.
	IsResting
	// IsAway: it had an action before the State began, and has not called since.
	IsAway
	// IsSuspended: it has nothing and gets nothing for a while, because its actions failed.
	IsSuspended
)

// ranked are the conditions in order of precedence: a program is executing if one of its positions
// is, and it rests only if all of its positions rest or are drained.
var ranked = [...]Condition{IsExecuting, IsDraining, IsAway, IsIdle, IsSuspended, IsResting, IsDrained}

// ConditionOf returns the condition of a program whose positions have these.
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

// Workers counts the workers of a queue as operators know them: programs, each with all of its
// positions.
type Workers struct {
	// Idle, Busy, Draining, Resting and Suspended are parts of All. Busy have an action, Draining
	// have been drained, or leave when their actions have ended.
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
	// Worker is the key of one of its positions.
	Worker string
	// Positions is how many it has, Actions how many of them have an action.
	Positions, Actions int
	// Serves: it gets actions.
	Serves bool
}

// A Program is State's view of one program. It is a value.
type Program struct {
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
	// Address is where it calls from. Twin is where another process calls from as the same worker,
	// and was refused last at Refused; empty: none.
	Address, Twin string
	Refused       time.Time
	// Positions are in the order of their keys.
	Positions []Position
}

// A Position is State's view of one position of a program. It is a value.
type Position struct {
	ID        map[string]string // not to be changed
	Condition Condition
	// Action is the one that it runs since Since, or has not stopped yet; empty if none.
	Action string
	Since  time.Time
}
