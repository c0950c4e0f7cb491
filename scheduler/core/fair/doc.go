// Package fair chooses the next item to run, so that branches at every level of a hierarchy get
// fair shares of a farm.
//
// A Tree is a trie of keys (such as instance name, build, invocation). Waiting and running items
// belong to its leaves. In each branch, the child with the least running work relative to its
// weight goes first. Within a leaf, items are ordered by priority, then items that a lost worker
// returned, then by the longest expected duration, then by age. The tree also knows the branch of
// each worker's last item, to keep the worker there for a while, and to find the idle worker
// nearest to new work.
//
// Running work is a sum of costs, which the caller chooses (size classes). A branch with waiting
// work of priority p has 2^(-p/100) of the weight that it would have with priority 0, p being the
// best priority of all items that wait below it: 100 steps are a factor of two. Equal branches take
// turns, by virtual time, in which priority has no part: each start moves a branch to its cost over
// its weight after the branch with the latest turn, and a branch that comes back to the queue
// starts at the time of the others. So there are neither debts nor savings. Remaining ties go to
// the branch whose last turn, or else creation, is longest ago. So:
//
//   - A branch without running items goes before every branch with running items, whatever the
//     weights.
//   - No branch starves: a branch without running items waits for at most one turn of each sibling
//     or, if weights or costs differ, for as many as its own last turn was worth.
//   - With much running work, branches have shares in proportion to their weights and priorities;
//     with little, they have turns in proportion to their weights.
//
// An Item is one piece of work, and can be in several leaves at once, with an Entry for each
// operation that waits for it. It starts when the first of its entries has its turn, and then
// leaves all leaves. An entry whose operation no client waits for can be parked: it keeps its rank
// and has no turn. While the item runs, each branch pays its whole cost, once, however many of its
// entries are below it: a branch pays as much as if it were alone, and no account changes when
// others join or leave.
//
// An item can avoid a group of workers (Options.Avoid). It keeps its rank and its turns, and Find
// returns what is next for that group without looking at the items that avoid it.
//
// Workers of all kinds share one account: an item waits for one of them (its size class), but
// running work counts in all.
//
// A branch exists while an item below it waits or runs, or a worker belongs to it; so memory is
// bounded by work and workers. Choosing, starting and ending cost O(levels · log n), and read only
// one child at each level.
//
// The package has no clock, goroutine, randomness or I/O, does not know quotas (Options.Admit asks
// their owner) and is not safe for concurrent use.
package fair
