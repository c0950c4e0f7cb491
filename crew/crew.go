package crew

import (
	"sync/atomic"
	"time"
)

// patience is how long an idle goroutine waits for another function.
const patience = time.Minute

// A Crew runs functions concurrently. A nil Crew has a new goroutine for each of them.
type Crew struct {
	next chan func() // without a buffer: a function in it has a goroutine
	most int32
	idle atomic.Int32
}

// New returns a Crew of which so many goroutines at most wait for further functions.
func New(most int) *Crew { return &Crew{next: make(chan func()), most: int32(most)} }

// Go runs f without waiting for it.
func (c *Crew) Go(f func()) {
	if c == nil {
		go f()
		return
	}
	select {
	case c.next <- f:
	default:
		go c.work(f)
	}
}

// work runs f, and what comes after it.
func (c *Crew) work(f func()) {
	patient := time.NewTimer(patience)
	defer patient.Stop()
	for {
		f()
		if f = c.wait(patient); f == nil {
			return
		}
	}
}

// wait returns the next function for an idle goroutine; nil: it is to end.
func (c *Crew) wait(patient *time.Timer) func() {
	defer c.idle.Add(-1)
	if c.idle.Add(1) > c.most {
		return nil
	}
	patient.Reset(patience)
	select {
	case f := <-c.next:
		return f
	case <-patient.C:
		return nil
	}
}
