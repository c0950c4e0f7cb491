package timer

import "time"

// A Clock has the time of the present event, and what is due later. It stands still between events; whoever moves it knows what to
// do for the owner of each timer.
type Clock struct {
	Now    time.Time
	Timers Heap
}
