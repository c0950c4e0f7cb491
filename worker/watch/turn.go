package watch

import "time"

// A turn tells when it is time to look at some objects of the kernel: once in scarceInterval, and
// earlier if all its objects have grown.
type turn struct {
	last, early time.Time // when it was the last one, and when the next one may be early
	kernel      int64     // the least bytes of all objects since then
}

// due reports whether it is time, and how old a count of the objects may be.
func (t *turn) due(kernel int64) (age time.Duration, due bool) {
	t.kernel = min(t.kernel, kernel) // memory that others free must not hide growth
	switch now := time.Now(); {
	case now.Sub(t.last) >= scarceInterval:
		return scarceInterval, true
	case kernel-t.kernel > scarceGrowth && !now.Before(t.early):
		return unchargedInterval, true
	}
	return 0, false
}

// taken says that the turn has been taken. The next one should be after a rest.
func (t *turn) taken(kernel int64, rest time.Duration) {
	now := time.Now()
	t.last, t.early = now.Add(max(min(rest, longestScarce)-scarceInterval, 0)), now.Add(min(rest, scarceInterval))
	t.kernel = kernel
}
