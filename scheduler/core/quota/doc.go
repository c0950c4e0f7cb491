// Package quota decides which instance names that share workers may run more, and which runs must
// yield.
//
// A cohort is a set of labels, a label a set of properties of a platform. A worker is in the cohort
// that has all of its labels (Config). In each cohort a Ledger keeps for each instance name its
// Quota (its guarantee and its limit), its use, and the Runs that make this up, each with a cost:
// its size class or 1, by the unit of the cohort.
//
// An instance that uses less than its minimum goes before all others (Ledger.Standing), which may
// run as long as they stay within their maximum. If that does not suffice, because no worker is
// free, Ledger.Victim chooses a run to stop. It is one of the instance that is furthest over its
// minimum, of the lowest priority there, and of those the one that has run for the shortest time.
// It is never one
//
//   - that its owner has shielded, because it is about to end;
//   - whose end would leave its instance below the minimum. As only instances below their minimum
//     stop others, and only until they reach it, no two of them ever take the same worker from each
//     other back and forth;
//   - whose task has been stopped as often as is allowed.
//
// The victim is marked for the instance for which it is stopped (Ledger.MarkFor), so that no
// instance stops more than it needs, and spared when it is needed no longer (Ledger.Deserved).
//
// The package does not know queues, workers and waiting tasks. It has no clock, goroutine,
// randomness or I/O and is not safe for concurrent use. Standing is one map lookup; Start and End
// cost O(log n) of the instance's runs, Victim is linear in the instances with runs in that kind.
package quota
