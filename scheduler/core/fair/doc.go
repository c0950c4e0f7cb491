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
// of two. Branches that are equal in that take turns, by virtual time: each start
// moves a branch on by its cost over its weight, and one that comes back to the
// queue starts at the time of the others, so that waiting earns nothing. What is
// still equal goes by the order of creation. So:
//
//   - A branch with nothing running goes before every one that has something
//     running, whatever the weights: nobody starves.
//   - With much running, branches have shares in proportion to their weights; with
//     little, they have turns in that proportion.
//
// An Item is one piece of work, and can be in several leaves at once, with an
// Entry for each operation that waits for it. It starts when the first of its
// entries has its turn, and is then gone from all leaves. While it runs, each
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
