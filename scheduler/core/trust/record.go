package trust

import (
	"math/bits"
	"time"
)

// A Standing is how much work a worker gets.
type Standing uint8

// The standings.
const (
	// Trusted: it gets as much as it asks for.
	Trusted Standing = iota
	// Suspended: it gets nothing.
	Suspended
	// OnTrial: it gets one action at a time.
	OnTrial
)

const (
	// leastPause is how long a first suspension takes. Each that follows takes twice as long, up to
	// mostPause, until there was none for twice mostPause.
	leastPause, mostPause = 10 * time.Second, 10 * time.Minute
	// window is how many runs are remembered.
	window = 16
)

// A Record is the history of one worker. The zero Record has no runs.
type Record struct {
	standing Standing
	// last has a bit for each of the last runs, the lowest for the last one: 1 if it failed.
	last uint16
	// row counts the failures since the last success.
	row int
	// pause is how long the last suspension was to take, until when.
	pause time.Duration
	until time.Time
}

// Standing returns how much work the worker gets.
func (r *Record) Standing() Standing { return r.standing }

// Until returns when the present suspension ends, or when the last one ended.
func (r *Record) Until() time.Time { return r.until }

// Row returns the number of consecutive failures up to the last run.
func (r *Record) Row() int { return r.row }

// Failures returns the number of failures among its last 16 runs.
func (r *Record) Failures() int { return bits.OnesCount16(r.last) }

// IsWell reports whether the worker is trusted and its last run did not fail.
func (r *Record) IsWell() bool { return r.standing == Trusted && r.row == 0 }

// Ran records how a run ended.
func (r *Record) Ran(failed bool) {
	r.last <<= 1
	if !failed {
		r.row = 0
		return
	}
	r.last |= 1
	r.row++
}

// IsSuspect reports whether the last run failed and either so many consecutive runs did, or at
// least half of the last 16 and no fewer than that number.
func (r *Record) IsSuspect(limit int) bool {
	return r.row >= limit || r.row > 0 && r.Failures() >= max(limit, window/2)
}

// Suspend suspends the worker, and returns the end of the suspension.
func (r *Record) Suspend(now time.Time) time.Time {
	r.pause = min(2*r.pause, mostPause)
	if r.pause == 0 || now.Sub(r.until) > 2*mostPause {
		r.pause = leastPause
	}
	r.standing, r.until = Suspended, now.Add(r.pause)
	return r.until
}

// Try puts a suspended worker on trial.
func (r *Record) Try(now time.Time) { r.standing, r.until = OnTrial, now }

// Absolve trusts a worker again, and forgets the outcomes of its runs.
func (r *Record) Absolve() { r.standing, r.last, r.row = Trusted, 0, 0 }
