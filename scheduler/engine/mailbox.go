package engine

import (
	"fmt"
	"sync"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// MaxFollowers limits the streams that follow one operation: Config.MaxPerClient counts operations,
// not their followers. Calls of Execute that share a run each follow their own operation.
const MaxFollowers = 1000

// streams are the followers of operations, by name. It has no lock.
type streams map[string]followers

// followers are the streams that follow one operation, the newest first.
type followers struct {
	first *Mailbox
	count int
}

// add has a stream follow an operation.
func (s streams) add(name string, m *Mailbox) {
	f := s[name]
	if m.next = f.first; m.next != nil {
		m.next.prev = m
	}
	s[name] = followers{m, f.count + 1}
}

// remove undoes it.
func (s streams) remove(name string, m *Mailbox) {
	f := s[name]
	if m.next != nil {
		m.next.prev = m.prev
	}
	if m.prev != nil {
		m.prev.next = m.next
	} else {
		f.first = m.next
	}
	m.next, m.prev = nil, nil
	if f.count--; f.count == 0 {
		delete(s, name)
		return
	}
	s[name] = f
}

// crowded returns why no further stream may follow an operation; nil if one may.
func (s streams) crowded(name string) error {
	if n := s[name].count; n >= MaxFollowers {
		return fmt.Errorf("%d streams follow operation %q already", n, name)
	}
	return nil
}

// tell sends a new state to the followers of its operation.
func (s streams) tell(st *event.Status) {
	for m := s[st.Name].first; m != nil; m = m.next {
		m.Put(st)
	}
}

// close closes all Mailboxes.
func (s streams) close() {
	for _, f := range s {
		for m := f.first; m != nil; m = m.next {
			m.Close()
		}
	}
}

// A Mailbox holds the latest state of one operation for one stream. Put never blocks, so a slow
// client delays nothing; it skips intermediate states, but never the end.
type Mailbox struct {
	// full has a value when there is something to take, and is closed when nothing more comes.
	full chan struct{}
	// next and prev are of the same operation; guarded by Engine.mu.
	next, prev *Mailbox

	mu     sync.Mutex
	status *event.Status // guarded by mu; nil if the last one was taken
	rev    uint64        // guarded by mu; of the last that was put
	closed bool          // guarded by mu
	// hurry ends the time in which Full tells only of the end; guarded by mu, nil: it is over.
	hurry *time.Timer
}

// NewMailbox returns an empty Mailbox.
func NewMailbox() *Mailbox { return &Mailbox{full: make(chan struct{}, 1)} }

// NewPatientMailbox returns an empty Mailbox whose Full tells only of the end, as long as patience
// lasts: a stream of a short operation then has one message. The reader calls Leave.
func NewPatientMailbox(patience time.Duration) *Mailbox {
	m := NewMailbox()
	if patience <= 0 {
		return m
	}
	m.mu.Lock() // the timer may be quick
	defer m.mu.Unlock()
	m.hurry = time.AfterFunc(patience, m.tellAll)
	return m
}

// tellAll has Full tell of every state from now on.
func (m *Mailbox) tellAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hurry = nil
	if m.status != nil && !m.closed {
		m.signalLocked()
	}
}

// Leave says that nobody reads any more.
func (m *Mailbox) Leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.hurry != nil {
		m.hurry.Stop()
	}
}

// Full returns a channel that has a value when there is something to take, and is closed when
// nothing more comes.
func (m *Mailbox) Full() <-chan struct{} { return m.full }

// Put stores st, which must not change any more, unless the stored state is newer: states may
// arrive out of order.
func (m *Mailbox) Put(st *event.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.rev != 0 && st.Rev <= m.rev {
		return
	}
	m.status, m.rev = st, st.Rev
	if m.hurry == nil || st.Done() {
		m.signalLocked()
	}
}

func (m *Mailbox) signalLocked() {
	select {
	case m.full <- struct{}{}:
	default:
	}
}

// Close tells the reader that nothing more follows.
func (m *Mailbox) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		close(m.full)
	}
}

// Take returns the latest state, after Full has given its value, and whether more may come. The
// state is nil if it was taken already.
func (m *Mailbox) Take() (st *event.Status, open bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st, m.status = m.status, nil
	return st, !m.closed
}
