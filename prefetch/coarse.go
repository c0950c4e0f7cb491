package prefetch

// The bounds of a history of actions that are alike.
const (
	coarseRuns  = maxRuns
	coarsePaths = 1 << 14 // about 200 KiB in a store
)

// coarseShare is the share of the actions that have to read a path, in percent.
const coarseShare = 30

// coarseLeast returns how many of so many actions have to read a path that is to be
// foreseen for another one that is like them. With the first of them there is nothing to
// compare; from then on a single reader is never enough, so that the own sources of an
// action are not taken for those of all.
func coarseLeast(actions int) int {
	if actions < 2 {
		return 1
	}
	return max(2, (actions*coarseShare+99)/100)
}

// coarseDue reports whether a coarse record is written that has changed so many times:
// the first three times, and later when half of it may be other actions'.
func coarseDue(changes, actions int) bool { return changes >= max(1, actions/2) }
