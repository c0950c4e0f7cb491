package prefetch

import (
	"sync"
	"time"
)

// The bounds of a pace.
const (
	firstWindow = 512 << 10
	leastWindow = 128 << 10
	mostWindow  = 16 << 20
	// paceSlack is how much longer a call may always take because of other traffic: if a round trip
	// takes less, the difference does not matter.
	paceSlack = 10 * time.Millisecond
	// paceGrowth is by how many times the bytes of a call the window may grow after it.
	paceGrowth = 3
	// tripAges is after how many calls the shortest of them is half forgotten.
	tripAges = 1024
)

// A pace limits the bytes that the races of a worker may have in flight for prefetching: as many as
// the link to the storage carries in about a round trip. A caller that begins to wait for a blob
// then waits no longer than without prefetching. It learns from the calls: while they take little
// longer than a round trip the window grows, otherwise it shrinks. The zero value is ready.
type pace struct {
	mu     sync.Mutex
	window int64         // bytes; 0: nothing is known
	trip   time.Duration // that of a call that carries little; 0: nothing is known
	shrunk time.Time     // calls that began earlier have no new information
	over   time.Duration // if the window has just become much smaller: by how much the call was late that was the reason
	busy   int           // races that have something under way
}

func (p *pace) windowLocked() int64 {
	if p.window == 0 {
		p.window = firstWindow
	}
	return p.window
}

// look returns the window, and the share of one race, which is busy or not.
func (p *pace) look(busy bool) (window, share int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	races := p.busy
	if !busy {
		races++
	}
	window = p.windowLocked()
	return window, window / int64(max(races, 1))
}

// turn notes that a race has something under way now, or nothing any more.
func (p *pace) turn(busy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if busy {
		p.busy++
	} else {
		p.busy--
	}
}

// A usage is how a race used its share of the window while a call was under way.
type usage struct {
	full bool // at least half of it was in use
	// No more bytes were in flight than it admits. Neighbours do not wait for it, and one file may be
	// larger: then calls are not quicker with a smaller window.
	bounded bool
}

// used has when calls began after which so many bytes were in flight: calls of that time or before
// had them beside them.
type used struct{ full, beyond time.Time }

// note notes that a call begins, with which so many bytes are in flight. A call has most bytes at
// most, except for a single file.
func (u *used) note(total, share, most int64) {
	now := time.Now()
	if 2*total >= share {
		u.full = now
	}
	if total > share+most {
		u.beyond = now
	}
}

// since returns the usage since a call began.
func (u *used) since(began time.Time) usage {
	return usage{full: !u.full.Before(began), bounded: u.beyond.Before(began)}
}

// took records how long a call took that carried so many bytes of files.
func (p *pace) took(began time.Time, bytes int64, use usage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := max(time.Since(began), 1)
	if p.trip += p.trip / tripAges; p.trip == 0 || took < p.trip {
		p.trip = took
	}
	tolerated, news, before := max(p.trip, paceSlack), !began.Before(p.shrunk), time.Duration(0)
	if news && use.bounded {
		before, p.over = p.over, 0
	}
	switch over := took - p.trip; {
	case over <= tolerated && use.full:
		p.over = 0
		more := min(bytes*int64(tolerated/max(over, 1)), paceGrowth*bytes)
		p.window = min(p.windowLocked()+more, mostWindow)
	case over > tolerated && before > 0 && 4*over > 3*before:
		// A smaller window has not helped: calls are slow for another reason, such as a busy
		// machine.
		p.trip += over / 2
	case over > tolerated && news:
		was := p.windowLocked()
		p.window = max(was/2, int64(float64(was)*float64(tolerated)/float64(over)), leastWindow)
		p.shrunk = time.Now()
		if 4*p.window < 3*was {
			p.over = over
		}
	}
}
