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

func (c *Crew) work(f func()) {
	f()
	patient := time.NewTimer(patience)
	defer patient.Stop()
	for c.idle.Add(1) <= c.most {
		patient.Reset(patience)
		select {
		case f := <-c.next:
			c.idle.Add(-1)
			f()
		case <-patient.C:
			c.idle.Add(-1)
			return
		}
	}
	c.idle.Add(-1)
}
