package watch

import (
	"sync"
	"time"
)

// glanceAge is how old what a glance finds may be.
const glanceAge = unchargedInterval / 2

// A glance determines a value of the whole machine for all commands that ask at about the same
// time. The one that determines it does not wait for others.
type glance[T any] struct {
	find func() (T, error)

	mu    sync.Mutex
	next  time.Time // when it is found again; guarded by mu, as all below
	value T
	err   error
}

// get returns the value.
func (g *glance[T]) get() (T, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !time.Now().Before(g.next) {
		g.value, g.err = g.find()
		g.next = time.Now().Add(glanceAge) // after it: those that waited for it take its value
	}
	return g.value, g.err
}
