package health

import (
	"math"
	"time"
)

const (
	// A disk takes no more than fillBytes, or fillFiles, in a second.
	fillBytes, fillFiles = 4 << 30, 250_000
	// unbounded is more than anybody can use up.
	unbounded = math.MaxInt64
	// A disk is looked at after leastLook at the soonest, mostLook at the latest.
	leastLook, mostLook = time.Millisecond, 250 * time.Millisecond
)

// Lasts is how soon a disk is full of which so much is free, if others write as fast as can be.
func Lasts(bytes, files int64) time.Duration {
	seconds := min(float64(bytes)/fillBytes, float64(files)/fillFiles)
	return time.Duration(min(seconds, time.Hour.Seconds()) * float64(time.Second))
}

// NextLook is when to look again at a disk that lasts so long. However fast it is filled, at least half of what was free
// is then left. So nobody fills it, and frees it again, without that it is seen to become ever fuller.
func NextLook(lasts time.Duration) time.Duration { return min(max(lasts/2, leastLook), mostLook) }

// A lookout knows whether a disk may have been full between two looks. The zero lookout has not looked.
type lookout struct {
	at    time.Time
	lasts time.Duration // from then
}

// sees takes down a look, which took from began to ended. It reports whether the disk may have been full since the one before:
// it was not looked at for so long, as on a machine that is too busy.
func (l *lookout) sees(began, ended time.Time, now space) (missed bool) {
	missed = !l.at.IsZero() && ended.Sub(l.at) > l.lasts
	if began.After(l.at) {
		l.at, l.lasts = began, now.lasts
	}
	return missed
}
