// Package comparison says why an action ran, though its result might have been in the action cache: what came of it before, and
// in what it differs from the nearest other run of the same target. Pages and the command line show the same.
//
// Records of operations say which runs there were; actions, commands and the folders of inputs that differ are read from
// storage, all as the one who asks may see them. The profile of a command says which of its inputs were read.
//
// The package refuses to guess: what is not, or no longer, known is said as such. Everything is bounded: the runs that are looked at,
// the folders, the differences of each kind and the bytes of each. Goroutines read folders, a few at a time, and end before
// Explain does. There are no locks.
package comparison
