package operators

import (
	"cmp"

	"github.com/forerunner-build/forerunner/scheduler/core/view"
)

// Slots are numbers of slots in which workers run commands.
type Slots struct {
	// Busy slots have an action, Free ones can get one; the others belong to workers that get no
	// more. All is the total.
	All, Busy, Free int
}

// SlotsOf counts the slots of programs. A program that does not report its slots takes an action
// for each of its positions. Positions beyond the slots fetch inputs or store outputs.
func SlotsOf(loads ...view.Load) (n Slots) {
	for _, l := range loads {
		all := cmp.Or(l.Slots, l.Positions)
		busy := min(l.Actions, all)
		n.All += all
		n.Busy += busy
		if l.Serves {
			n.Free += all - busy
		}
	}
	return n
}

// Plus returns the sum of both.
func (n Slots) Plus(other Slots) Slots {
	return Slots{n.All + other.All, n.Busy + other.Busy, n.Free + other.Free}
}
