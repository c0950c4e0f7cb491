// Package crew runs functions on goroutines that wait for further ones.
//
// A new goroutine has a small stack, which grows by copies while functions call each other: a call
// through a server's layers copies it three or four times, which costs more than all else about a
// goroutine. One that was used before has a larger stack, until garbage collections have halved it.
//
// Functions may end their goroutine. They must leave it as it was, with its thread: not locked, with
// the same user, groups, namespaces and settings of the runtime.
//
// Nobody waits for idle goroutines, which end after a minute and refer to nothing but their Crew. A
// Crew of a bubble of testing/synctest must have ended them before the test does. There are no
// locks.
package crew
