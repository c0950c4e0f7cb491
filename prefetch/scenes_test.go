package prefetch

import (
	"os"
	"strconv"
	"time"
)

// scenes returns how many of so many random scenes to play: fewer under the race detector, and as
// many as FORERUNNER_TEST_SCENES says if it is set.
func scenes(n uint64) uint64 {
	if more, err := strconv.ParseUint(os.Getenv("FORERUNNER_TEST_SCENES"), 10, 32); err == nil {
		return more
	}
	if underRace {
		return n / 4
	}
	return n
}

// A comparison is between the waiting of an action with something and without it: with it, it may
// wait 1.2 times as long, and slack longer. Which requests share a trip depends on which goroutine
// comes first, so that both differ from run to run, some twofold.
type comparison struct {
	slack         time.Duration
	with, without func() time.Duration
}

// isAbove reports whether the waits of two runs are above, and the mean of further ones is, too.
func (c comparison) isAbove(with, without time.Duration) bool {
	if with <= without*12/10+c.slack {
		return false
	}
	const runs = 5
	with, without = 0, 0
	for range runs {
		with, without = with+c.with(), without+c.without()
	}
	return with > without*12/10+runs*c.slack
}
