// Package comparison explains why an action ran although its result might have been in the action
// cache: it has the outcome of the action's earlier runs, and the differences from the most similar
// run of the same target. Pages and the command line show the same explanation.
//
// It finds runs in the records of operations. It reads actions, commands and the differing input
// folders from storage, all with the rights of the caller. The profile of a command lists the
// inputs that the command read.
//
// The package does not guess: it says what is unknown. Everything is limited: the compared runs,
// the folders, the differences of each kind and the bytes of each. Goroutines read folders, a few
// at a time, and end before Explain returns. There are no locks.
package comparison
