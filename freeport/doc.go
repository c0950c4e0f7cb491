// Package freeport finds addresses for servers of tests, which begin to listen later, or for nobody.
// It has no state, no goroutines and no locks.
package freeport
