// Package fair chooses what is to run next, so that those who share a farm get
// fair shares of it at every level of a hierarchy.
//
// A Tree is a trie of keys (say instance name, build, invocation). What waits and
// what runs belongs to its leaves. In each branch, the child goes first that has
// the least running work relative to its weight. Within a leaf, it is priority,
// then what came back from a lost worker, then the longest expected duration,
// then age. The tree also knows where each worker was of use last, to
// keep it there for a while, and to find the idle worker nearest to new work.
//
// Running work is a sum of costs, numbers of the caller's (size classes). A branch
// that holds work of priority p weighs 2^(-p/100) of what it would with priority
// 0, p being the best priority of all that waits below it: 100 steps are a factor
// of two. Branches that are equal in that take turns, by virtual time, in which
// priority has no part: each start moves a branch to its cost over its weight after
// the branch that had the latest turn, and one that comes back to the queue
// starts at the time of the others. So there are neither debts nor savings. What is
// still equal goes to whose last turn, or else creation, is longest ago. So:
//
//   - A branch with nothing running goes before every one that has something
//     running, whatever the weights.
//   - Nobody starves: a branch with nothing running waits for one turn of each sibling
//     at most or, where weights or costs differ, for as many as its own last turn was worth.
//   - With much running, branches have shares in proportion to what they weigh with their
//     priorities; with little, they have turns in proportion to their weights.
//
// An Item is one piece of work, and can be in several leaves at once, with an
// Entry for each operation that waits for it. It starts when the first of its
// entries has its turn, and is then gone from all leaves. An entry whose operation nobody waits for can be
// parked: it keeps its rank and has no turn. While it runs, each
// branch pays its whole cost, once, however many of its entries are below it: so
// much it would have running if nobody else had wanted the same, and nobody's
// account changes when others join or leave.
//
// Workers of all kinds share one account: an item waits for one of them
// (its size class), but what runs counts in all.
//
// A branch exists while something below it waits or runs, or a worker belongs to it; so
// memory is bounded by work and workers. Choosing, starting and ending cost
// O(levels · log n), and nothing looks at more than one child for each level.
//
// The package has no clock, goroutine, randomness or I/O, knows nothing of quotas
// (Options.Admit asks somebody who does) and is not safe for concurrent use.
package fair
