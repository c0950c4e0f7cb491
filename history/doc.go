// Package history keeps a record of each completed operation, for weeks, and finds them again: by
// name, action, target, mnemonic, user, invocation, worker, outcome and time, among a million in
// less than a second.
//
// Records are neither hints nor durable in the sense of package records: each is written once and
// never changed, the oldest are removed when they are too old or too many, and a crash loses the
// last second of them. A lost record harms no action. The package does not decide who may see a
// record: Query.Owned does.
//
// # Files
//
// A folder has segments, each a file of compressed blocks of records, in the order in which the
// operations ended, and beside it an index: a column of numbers for each searchable field, and a
// table of the texts that they stand for. The last segment's index is in memory until it is full. A
// search reads the columns that it needs, the latest segment first, and then the blocks of its
// results. Why not a bbolt file: with three secondary indexes it costs the machine several times as
// much CPU per record (BenchmarkBolt), which at ten thousand records a second slows down dispatch.
//
// Each block and column has a checksum. A segment without an index, as after a crash, is read when
// the Store is opened, and a damaged end is truncated. A file of another format is an error, not
// overwritten.
//
// # Goroutines and locks
//
// Add never blocks on a disk: it fills blocks in memory, which Run writes, twice a second or when
// one is full. Run is the caller's goroutine. Store.mu guards the state in memory; no I/O is done
// while it is held.
package history
