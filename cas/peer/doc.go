// Package peer lets workers read each other's stores (Lender), which they do before they ask storage
// (Neighbours). Nothing is believed that a peer says, and nothing depends on one: that it is slow, wrong
// or gone costs a few milliseconds and fails nothing.
//
// A call of Neighbours.Fetch has one goroutine, and waits for it. hunt.mu and Neighbour.mu are each
// alone; neither is held during I/O or a callback.
package peer
