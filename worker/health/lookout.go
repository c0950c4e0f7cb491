package health

import (
	"math"
	"time"
)

const (
	// A disk takes no more than fillBytes, or fillFiles, in a second.
	fillBytes, fillFiles = 4 << 30, 250_000
	// unbounded is more than can ever be used up.
	unbounded = math.MaxInt64
	// A disk is measured after leastLook at the soonest, mostLook at the latest.
	leastLook, mostLook = time.Millisecond, 250 * time.Millisecond
)

// Lasts returns how soon a disk with that much free space can be full, if other processes write at
// full speed.
func Lasts(bytes, files int64) time.Duration {
	seconds := min(float64(bytes)/fillBytes, float64(files)/fillFiles)
	return time.Duration(min(seconds, time.Hour.Seconds()) * float64(time.Second))
}

// NextLook returns when to measure a disk again that lasts that long. However fast it is filled, at
// least half of the free space is then left. So no process can fill it and free it again between
// two measurements unnoticed.
func NextLook(lasts time.Duration) time.Duration { return min(max(lasts/2, leastLook), mostLook) }

// A lookout knows whether a disk may have been full between two looks. The zero lookout has not
// looked.
type lookout struct {
	at    time.Time
	lasts time.Duration // from then
}

// sees records a measurement, which took from began to ended. It reports whether the disk may have
// been full since the last one, because that was too long ago, as on a machine that is too busy.
func (l *lookout) sees(began, ended time.Time, now space) (missed bool) {
	missed = !l.at.IsZero() && ended.Sub(l.at) > l.lasts
	if began.After(l.at) {
		l.at, l.lasts = began, now.lasts
	}
	return missed
}
