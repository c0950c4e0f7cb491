// Package relay copies records of operations from one scheduler to others that may replace it. They
// share a store, such as a Redis. Each scheduler stores the records of all in its own
// history.Store. So a link to a record works whichever scheduler serves it, even if the machine
// that made the record is gone.
//
// # Shared data
//
// The store has a fixed number of slots, which are written in turn, and the number of the last
// slot. A slot has blocks of compressed records. One scheduler at a time publishes. It rewrites its
// last slot with more and more blocks until the slot is full. With each rewrite it also writes the
// slot's number, so a number that gets lost, or that an earlier publisher writes late, is soon
// corrected. When all slots are used, the oldest is overwritten: a scheduler that was away for
// longer misses its records.
//
// A block names the data folder of its scheduler, so that no scheduler copies its own records. It
// also has a number that rises with each block of that folder. A reader skips the blocks that it
// already has, even if the store returns to an older state, as when a lagging replica replaces its
// master. A block has a checksum. A reader skips a damaged block with the rest of its slot, and the
// next publisher starts a new slot.
//
// A file next to the records has the position of a Relay. A publisher moves it forward only when it
// has copied everything that others had published. If that fails at first, it copies the rest
// later.
//
// The package never delays its callers: Add does not block, and records wait in a limited queue
// while the store does not answer. Further records are lost for other schedulers, but not for the
// one that made them.
//
// # Goroutines and locks
//
// It has no goroutines: one caller at a time calls Publish, Pull and Run. Relay.mu guards the queue
// of Add; it is not held during I/O.
package relay
