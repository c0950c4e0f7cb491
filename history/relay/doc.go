// Package relay copies records of operations from one scheduler to others that may replace it,
// through a store that they share, such as a Redis. Each scheduler keeps the records of all in its
// own history.Store. So a link works whichever scheduler serves it, also after the machine that made
// the record is gone.
//
// # Shared data
//
// The store has a fixed number of slots, which are written in turn, and the number of the last slot.
// A slot has blocks of compressed records. One scheduler at a time publishes. It rewrites its last
// slot, longer each time, until it is full, and the number with it: so a lost number, or one that an
// earlier publisher wrote late, does not last. When all slots are used the oldest is overwritten: a
// scheduler that was away for longer misses its records.
//
// A block names the data folder of its scheduler, so that no scheduler copies its own records, and
// has a number that rises with each block of that folder. A reader skips blocks that it has already,
// also if the store returns to an older state, as when a lagging replica replaces its master. A block
// has a checksum. A reader skips a damaged block with the rest of its slot, and the next publisher
// starts a new slot.
//
// A file beside the records has the position of a Relay. A publisher moves it forward only when it
// has copied everything that others had published, so it copies later what it could not copy at
// first.
//
// The package delays nobody: Add does not block, and records wait in a limited queue while the store
// does not answer. Beyond the limit they are lost for other schedulers, but not for the one that made
// them.
//
// # Goroutines and locks
//
// It has no goroutines: one caller at a time calls Publish, Pull and Run. Relay.mu guards the queue
// of Add; no I/O is done while it is held.
package relay
