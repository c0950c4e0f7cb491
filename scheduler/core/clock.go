package core

import (
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// A clock has the time of the present event, and what is due later. It stands still between events. State.due knows what to do
// for the owner of each timer.
type clock struct {
	now    time.Time
	timers timer.Heap
}
