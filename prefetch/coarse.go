package prefetch

// The bounds of a history of actions that are alike.
const (
	coarseRuns  = maxRuns
	coarsePaths = 1 << 14 // about 200 KiB in a store
)

// The share of the actions that have to read a path, in percent, so that it is foreseen,
// and so that it is if it is small: a round trip in ten costs more than ten small files.
const (
	coarseShare      = 30
	coarseSmallShare = 10
)

// coarseLeast returns how many of so many actions are that share. With the first of them
// there is nothing to compare; from then on a single reader is never enough, so that the
// own sources of an action are not taken for those of all.
func coarseLeast(actions, share int) int {
	if actions < 2 {
		return 1
	}
	return max(2, (actions*share+99)/100)
}

// coarseDue reports whether a coarse record is written that has changed so many times:
// the first three times, and later when half of it may be other actions'.
func coarseDue(changes, actions int) bool { return changes >= max(1, actions/2) }
