package health

import "time"

// A backoff is how long a worker with a fault rests. The zero backoff is ready.
type backoff struct {
	next time.Duration // after the next fault; less than leastPause counts as that
	last time.Time     // when a fault was found
	// blamed: an action has found a fault that no check did, so that successful checks mean little.
	blamed bool
}

// rest returns how long a worker with a fault rests: twice as long as the last time, unless that
// was long ago.
func (b *backoff) rest(now time.Time) time.Duration {
	if now.Sub(b.last) > 2*mostPause {
		b.next = 0
	}
	rest := max(b.next, leastPause)
	b.last, b.next = now, min(2*rest, mostPause)
	return rest
}

// passed notes that no check fails.
func (b *backoff) passed() {
	if !b.blamed {
		b.next = 0
	}
}
