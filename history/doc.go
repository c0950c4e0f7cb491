// Package history stores a record of each completed operation for weeks. It finds records by name,
// action, target, mnemonic, user, invocation, worker, outcome and time: among a million records in
// less than a second.
//
// Records are neither hints nor durable in the sense of package records. Each is written once and
// never changed. The oldest are removed when they are too old or too many, and a crash loses the
// records of the last second. A lost record harms no action. The package does not decide who may
// see a record: Query.Owned does.
//
// # Files
//
// A folder has segments. Each is a file of compressed blocks of records, in the order in which the
// operations ended, with an index in a second file. The index has a column of numbers for each
// searchable field, and a table of the texts that the numbers stand for. The index of the last
// segment is in memory until the segment is full. A search reads the columns that it needs, the
// latest segment first, and then the blocks of its results. A bbolt file with three secondary
// indexes would take several times as much CPU per record (BenchmarkBolt), which at ten thousand
// records a second slows down dispatch.
//
// Each block and column has a checksum. When a Store is opened, it reads the segments without an
// index, as after a crash, and truncates a damaged end. The first search of a segment checks its
// index, and rebuilds a damaged one. Damaged blocks and files are logged and skipped. A file of
// another format is an error, and is not overwritten.
//
// # Goroutines and locks
//
// Add never blocks on a disk: it fills blocks in memory. Run writes them twice a second, or when a
// block is full. What cannot be written waits; if there is no room for more, records are lost and
// counted: further ones while the disk blocks, the oldest while it fails. The caller provides the
// goroutine of Run. Store.mu guards the state in memory; it is not held during I/O.
package history
