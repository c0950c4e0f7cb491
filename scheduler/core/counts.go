package core

// A Tally counts what has happened to a State since it was made, for metrics.
type Tally struct {
	// Joined operations were added to an action that was queued or running.
	Joined uint64
	// Outgrown runs failed on a smaller size class, or with less time than their own, and were repeated on the largest.
	Outgrown uint64
	// Hedges are second runs beside one that took too long; Won are those that ended first.
	Hedges, Won uint64
	// Spilled tasks went from the queue of their size class to an idle worker of a larger one.
	Spilled uint64
	// Returned runs were lost with their worker, or dropped by it, and queued again.
	Returned uint64
	// Suspensions of workers began.
	Suspensions uint64
}

// Counts are the sizes of a State, for metrics.
type Counts struct {
	// Queued actions wait for a worker to be free, Unmatched ones for a first
	// worker that can serve them; Executing ones are with a worker.
	Queued, Unmatched, Executing int
	// Idle, Busy, Draining and Suspended sum up to the known workers. Those that are suspended have nothing left to do.
	Idle, Busy, Draining, Suspended int
}
