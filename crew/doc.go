// Package crew runs functions on goroutines that wait for further ones.
//
// A new goroutine has a small stack, which grows by copies while functions call each other: a call
// through a server's layers copies it three or four times, which costs more than all else about a
// goroutine. One that was used before has its stack already.
//
// Functions may end their goroutine, but must not leave it locked to its thread. There are no locks.
package crew
