// Package answers has what the scheduler answers to those who make pages. Whoever asks and however
// often, the scheduler is left alone after a question for 20 times as long as it took, so that
// pages cost it a twentieth of its time at most; but for no more than half a second, as what takes
// long does so because the machine is busy. Answers of the last second are given again.
//
// The package refuses to change anything, and to give an answer to others than those who may see
// it: see KeyFor. It has no goroutines. No mutex is held while the scheduler is asked; whose turn
// it is to ask is a place in a channel.
package answers
