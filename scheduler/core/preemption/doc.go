// Package preemption decides for each cohort which instance names may start tasks, and which
// running tasks must yield to which others, and when.
//
// A Cohort has the quotas in force and a quota.Ledger of running tasks. Each of its queues is a
// Queue, in which a Line has the waiting tasks of one instance name; a Share is the cohort's state
// of one task. When an instance is below its minimum and has waited for Options.Delay, a Line marks
// as many running tasks as it needs: each Mark has a deadline, Options.Grace later, before which
// all busy workers of the queue must call. A run may end by itself until then. If a marked one
// cannot be stopped, the next worker that calls and may be stopped replaces it.
//
// An instance may have Lines in thousands of queues. When its use changes, the Cohort looks at none
// of them: trees learn of its grade when they are used (fair.Changes), timers of Lines stay set,
// and Stirred returns only Lines with takers, for as long as the instance may run more.
//
// The package does not know workers and the replies to their calls: the caller reports waiting
// tasks (Queue.Enter, Leave) and running tasks (Queue.Charge, Share.Discharge), and asks whether a
// run must end (Share.IsPreempted). It has no goroutine, randomness or I/O, takes the time from the
// caller's timer.Clock, and is not safe for concurrent use.
package preemption
