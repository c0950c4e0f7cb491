// Package quota says who of those who share workers may run more, and who gives way.
//
// A cohort is a set of labels, a label a set of properties of a platform. A worker is
// in the cohort of which it has labels and none of any other (Config). In each cohort
// a Ledger keeps for each instance name its Quota (what it is guaranteed and what it
// may not exceed), what it uses now, and the Runs that make this up, each with a
// cost: its size class or 1, as the cohort wants.
//
// An instance that uses less than its minimum goes before all others
// (Ledger.Standing), which may run as long as they stay within their maximum. When
// that does not suffice, because nothing is free, Ledger.Victim says which run is to
// be stopped. It is one of the instance that is furthest over its minimum, of the
// lowest priority there, and of those the one that has run for the shortest time. It
// is never one
//
//   - whose owner has shielded it: it is about to end;
//   - that would leave its instance below the minimum. As only those below theirs
//     have others stopped, and no longer than until they reach it, no two of them
//     ever take the same worker from each other to and fro;
//   - of what has been stopped as often as is allowed.
//
// The victim is marked for whom it is meant for (Ledger.MarkFor), so that nobody stops
// more than he needs, and spared when it is needed no longer (Ledger.Deserved).
//
// The package knows nothing of queues, of workers and of what waits. It has no clock,
// goroutine, randomness or I/O and is not safe for concurrent use. Standing is a
// look into a map; Start and End cost O(log n) of the instance's runs, Victim is
// linear in the instances that run something where it looks.
package quota
