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

// all returns the window.
func (p *pace) all() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allLocked()
}

func (p *pace) allLocked() int64 {
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
	window = p.allLocked()
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

// took records how long a call took, and whether much of the window was in use meanwhile.
func (p *pace) took(began time.Time, bytes int64, full bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := max(time.Since(began), 1)
	if p.trip += p.trip / tripAges; p.trip == 0 || took < p.trip {
		p.trip = took
	}
	tolerated, news, before := max(p.trip, paceSlack), !began.Before(p.shrunk), time.Duration(0)
	if news {
		before, p.over = p.over, 0
	}
	switch over := took - p.trip; {
	case over <= tolerated && full:
		p.over = 0
		more := min(bytes*int64(tolerated/max(over, 1)), paceGrowth*bytes)
		p.window = min(p.allLocked()+more, mostWindow)
	case over > tolerated && before > 0 && 4*over > 3*before:
		// A smaller window has not helped: calls are slow for another reason, such as a busy
		// machine.
		p.trip += over / 2
	case over > tolerated && news:
		was := p.allLocked()
		p.window = max(p.allLocked()/2, int64(float64(p.allLocked())*float64(tolerated)/float64(over)), leastWindow)
		p.shrunk = time.Now()
		if 4*p.window < 3*was {
			p.over = over
		}
	}
}
