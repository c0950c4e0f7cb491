package prefetch

import (
	"os"
	"strconv"
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
