// Package core decides which worker runs which action.
//
// State is deterministic, and State.Step its only door: an event.Event goes in with its time, and
// an event.Out comes back that says what the caller must do. State has no clock, goroutine, I/O,
// lock, log or randomness, so that a history can be recorded and replayed (package journal),
// written as text (testdata) and fuzzed.
//
// Terms. An operation is the result of one Execute call; a task is one run of an action, shared by
// the operations that asked for the same action at the same time. Workers with the same instance
// name prefix and platform form a pool, which fits the actions whose properties it has; the workers
// of a pool with the same size class share a queue. Each pool has a fair.Tree, with a kind of
// workers for each queue, which decides what is next; tuning.Config.Queues configures its branches.
// Pools whose workers have certain labels are in a cohort, for which package preemption decides
// which instance names may run more, and which tasks are stopped for an instance below its minimum.
//
// Parts. State passes each event to one of three: clients handle events of clients, reports those
// of workers, operators those of operators. These use the following objects, which do not know them
// and share a timer.Clock.
//
//   - Tasks: operations are the requests of clients (package listing keeps their order), inFlight
//     the tasks by action (package orphan has results of tasks without operations).
//   - Queues: pools choose the queue of a task (package offer has the offers of workers); a pool
//     has a queue for each size class.
//   - Workers: package roster has the workers, and drain the drains of operators. The dispatcher
//     gives them queued tasks, and calls answers them. Overflows let a queue use idle workers of
//     larger size classes and of the other pools in its reach (reaches; package spill). Probation
//     suspends workers whose actions failed (package trust).
//   - Ends: runs end the tasks of workers, hedges are second runs.
//
// No event does more than tuning.Config.StepEffort allows. If many tasks must be looked at again
// (the last worker of a pool has left, or a first one has come), that is a sweep of a line (package
// sweep). If many timers are due at once, they are handled in turn. Later events continue the work,
// and Out.NextTick asks for the first of them at once.
//
// A View reads the state, and returns the values of package view; Check finds inconsistencies.
//
// States. A worker has a duty, an availability and a stage; a task is at one location, and has a
// course; each is one field.
//
// The package never guesses: a worker takes actions that ask for properties that it offers, and
// for all of its required properties; package request has the rule.
package core
