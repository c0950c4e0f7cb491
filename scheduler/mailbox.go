package scheduler

import "sync"

// A mailbox holds the latest state of one operation for one stream. Putting
// never blocks, so a slow client delays nobody; what it was too slow to see it
// skips, except for the end.
type mailbox struct {
	// full has a value whenever there is something to take.
	full chan struct{}

	mu     sync.Mutex
	status *Status // guarded by mu; nil before the first
}

func newMailbox() *mailbox { return &mailbox{full: make(chan struct{}, 1)} }

// put stores st, which nobody changes any more, unless what is there is newer: states
// may arrive out of order.
func (m *mailbox) put(st *Status) {
	m.mu.Lock()
	newer := m.status == nil || st.Rev > m.status.Rev
	if newer {
		m.status = st
	}
	m.mu.Unlock()
	if !newer {
		return
	}
	select {
	case m.full <- struct{}{}:
	default:
	}
}

// take returns the latest state, after full has given its value.
func (m *mailbox) take() *Status {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.status
}
