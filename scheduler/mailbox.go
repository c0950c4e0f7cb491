package scheduler

import (
	"sync"

	"github.com/forerunner-build/forerunner/scheduler/core"
)

// A mailbox holds the latest state of one operation for one stream. Putting
// never blocks, so a slow client delays nobody; what it was too slow to see it
// skips, except for the end.
type mailbox struct {
	// full has a value whenever there is something to take, and is closed when nothing more comes.
	full chan struct{}
	// next and prev are of the same operation; guarded by Server.mu.
	next, prev *mailbox

	mu     sync.Mutex
	status *core.Status // guarded by mu; nil if what was put is taken
	rev    uint64       // guarded by mu; of the last that was put
	closed bool         // guarded by mu
}

func newMailbox() *mailbox { return &mailbox{full: make(chan struct{}, 1)} }

// put stores st, which nobody changes any more, unless what was there is newer: states
// may arrive out of order.
func (m *mailbox) put(st *core.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.rev != 0 && st.Rev <= m.rev {
		return
	}
	m.status, m.rev = st, st.Rev
	select {
	case m.full <- struct{}{}:
	default:
	}
}

// close tells who takes that nothing more comes.
func (m *mailbox) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		close(m.full)
	}
}

// take returns the latest state, after full has given its value; nil if that is taken already, and
// whether more may come.
func (m *mailbox) take() (st *core.Status, open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st, m.status = m.status, nil
	return st, !m.closed
}
