// Package core decides which worker runs which action.
//
// State is deterministic, and State.Step its only door: an event.Event goes in with its time, and
// an event.Out comes back that says what the caller must do. State has no clock, goroutine, I/O,
// lock, log or randomness, so that a history can be written down and replayed (package journal),
// told as text (testdata) and fuzzed.
//
// Words. An operation is what one Execute call made; a task is one run of an action, shared by the
// operations that asked for the same action at the same time. Workers with the same instance name
// prefix and platform form a pool, which fits the actions that ask for no more; the workers of a
// pool with the same size class share a queue. Each pool has a fair.Tree, with a kind of workers
// for each queue, which says whose turn it is; what its branches are is in tuning.Config.Queues. Pools
// whose workers have certain labels are in a cohort, for which package preemption says which
// instance names may have more, and what is to be stopped for one that has less than it is
// guaranteed.
//
// Rooms. State passes each event to one of three: clients do what follows from what clients want,
// reports from what workers say, operators from what operators order. Below these, and without
// knowing them, are their objects, which share a timer.Clock.
//
//   - What wants to run: operations are what clients know of, inFlight the tasks by action
//     (package orphan has what came before anybody asked).
//   - Where it waits: pools say which queue is for a task (package offer has what workers offer), a
//     pool has queues of tasks, one for each size class.
//   - Who runs it: package roster has the workers, and drain what operators keep them from. The
//     dispatcher gives them what waits, calls answers them. Overflows have a queue use idle workers
//     of larger size classes and of the other pools in its reach (reaches; package spill).
//     Probation says which workers get nothing because what they ran has failed (package trust).
//   - How it ends: runs end what workers run, hedges are second runs.
//
// No event does more than tuning.Config.StepEffort allows. What many tasks have to be looked at again for
// (the last worker of a pool has left, a first one has come) is a sweep of a line (package sweep), and many
// timers that are due at once are taken in turn: events that follow go on with it, and Out.NextTick
// says that the first of them is to come at once.
//
// A View looks at all of it, and says so in the values of package view; Check says whether it is
// whole.
//
// States. A worker has a duty, an availability and a stage; a task is at one location, and has a
// course; each is one field.
//
// The package refuses to guess: a worker takes actions that ask for nothing that it does not offer,
// and for all that it must be asked for; package request has the rule.
package core
