// Package comparison says why an action ran, although its result might have been in the action
// cache: the outcome of its earlier runs, and how it differs from the most similar run of the same
// target. Pages and the command line show the same.
//
// Records of operations have the runs; actions, commands and the differing folders of inputs are
// read from storage, all with the rights of the caller. The profile of a command has the inputs
// that it read.
//
// The package does not guess: it says what is unknown. Everything is limited: the compared runs,
// the folders, the differences of each kind and the bytes of each. Goroutines read folders, a few
// at a time, and end before Explain does. There are no locks.
package comparison
