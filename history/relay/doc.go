// Package relay hands records of operations from a scheduler to those that take its place, through
// a store that all of them have, such as a Redis. Each keeps the records of all in its own
// history.Store, so that a link works whoever serves, also after the machine that made the record
// is gone.
//
// # What is shared
//
// The store has slots, written in turn, each with blocks of compressed records, and the number of
// the last slot. One scheduler at a time publishes; its last slot is written again, longer each
// time, until it is full, and with it its number, so that a number that the store lost, or that one
// whose turn has ended wrote late, does not last. Beyond the number of slots the oldest is written
// over: who was away for longer misses what was in it. A block says which data folder it is from,
// so that nobody takes over what is his own, and has a number that rises with each block of that
// folder: what is here already is passed over, also if the store goes back to an older state, as when
// a replica that lags takes the place of its master. It carries a checksum, and what is damaged is
// passed over with the rest of its slot; who publishes next begins another slot.
//
// Where a Relay has got to is in a file beside the records. Who publishes moves it on only after
// all that others had published is here: what could not be taken over at first is taken over later.
// The package refuses to be in anybody's way: Add is bounded and does not block, and while the
// store does not answer records wait, and are lost beyond that bound. Others miss them then; who
// made them does not.
//
// # Goroutines and locks
//
// It has no goroutine of its own: Publish, Pull and Run are called by one at a time. Relay.mu
// guards what Add adds; no I/O is done while it is held.
package relay
