// Package history keeps a record of each operation that has ended, for weeks, and finds them again: by name, action,
// target, mnemonic, user, invocation, worker, outcome and time, among a million in less than a second.
//
// Records are neither hints nor durable in the sense of package records: each is written once and never changed, the
// oldest go when they are too old or too many, and a crash loses the last second of them. To lose one harms no action.
// The package refuses to decide who may see a record: Query.Owned does.
//
// # Files
//
// A folder has segments, each a file of compressed blocks of records, in the order in which the operations ended, and beside it an
// index: a column of numbers for each thing that is searched for, and a table of the texts that they stand for. The last
// segment's index is in memory until it is full. A search reads the columns that it needs, the latest segment first,
// and then the blocks of what it returns. Why not a bbolt file: with three secondary indexes it costs the machine
// several times as much CPU per record (BenchmarkBolt), which at ten thousand records a second is taken from dispatch.
//
// Each block and column carries a checksum. A segment without an index, as after a crash, is read when the Store is opened,
// and what is damaged at its end is cut off. A file of another format is an error, not overwritten.
//
// # Goroutines and locks
//
// Add never blocks on a disk: it fills blocks in memory, which Run writes, twice a second or when one is full. Run is the
// caller's goroutine. Store.mu guards what is in memory; no I/O is done while it is held.
package history
