package census

import (
	"context"
	"sync"
)

// A Gate lets either commands run side by side, or a function run alone. The zero Gate is open.
type Gate struct {
	mu      sync.Mutex
	running int           // guarded by mu, as all below
	closed  chan struct{} // itself closed when the gate opens; nil: it is open
	empty   chan struct{} // closed when nothing runs any more, while the gate is closed
	closing chan struct{} // closed when the gate closes; nil: nothing runs
}

// Enter waits until the gate is open. The returned channel is closed when the command must be
// stopped because the gate is closing. Call Leave when the command has ended, unless Enter returns
// an error, which is that of ctx.
func (g *Gate) Enter(ctx context.Context) (closing <-chan struct{}, err error) {
	for {
		g.mu.Lock()
		closed := g.closed
		if closed == nil {
			g.running++
			if g.closing == nil {
				g.closing = make(chan struct{})
			}
			closing = g.closing
			g.mu.Unlock()
			return closing, nil
		}
		g.mu.Unlock()
		select {
		case <-closed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Leave must be called when a command has ended.
func (g *Gate) Leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.running--
	if g.running == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// Alone keeps new commands out, stops the running ones, waits for their end, and calls do. It does
// nothing if another call is doing that already, or if ctx ends before.
func (g *Gate) Alone(ctx context.Context, do func()) {
	g.mu.Lock()
	if g.closed != nil {
		g.mu.Unlock()
		return
	}
	opened, empty := make(chan struct{}), make(chan struct{})
	g.closed = opened
	if g.closing != nil {
		close(g.closing)
		g.closing = nil
	}
	if g.running == 0 {
		close(empty)
	} else {
		g.empty = empty
	}
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.closed, g.empty = nil, nil
		g.mu.Unlock()
		close(opened)
	}()
	select {
	case <-empty:
		do()
	case <-ctx.Done():
	}
}
