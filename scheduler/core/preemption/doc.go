// Package preemption says for each cohort what instance names may start, and which of what runs
// gives way to whom, and when.
//
// A Cohort has the quotas in force and a quota.Ledger of what runs. Each queue of it is a Queue, in
// which a Line is what waits of one instance name; a Share is what the cohort knows of one task.
// When an instance is below its minimum and has waited for Options.Delay, a Line has as many of
// those that run marked as it needs: each Mark has a deadline, Options.Grace later, by which all
// busy workers of the queue are asked to call. A run may end by itself until then; if the one that
// is marked cannot be stopped, the next worker that calls and may be stopped takes its place.
//
// The package knows nothing of workers and of what their calls are answered: the caller says what
// waits (Queue.Enter, Leave) and runs (Queue.Charge, Share.Discharge), and asks whether a run has
// to end (Share.IsPreempted). It has no goroutine, randomness or I/O, takes the time from the
// caller's timer.Clock, and is not safe for concurrent use.
package preemption
