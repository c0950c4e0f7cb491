// Package finished makes a record of each operation that has ended, and shows operators, and their owners, those that
// are kept (package history).
//
// Add takes no time: what an operation came to is put into a queue, and lost where that is full; no action waits for its record.
// The package refuses to change anything of an operation, and to hold what it prints: a record has the digests, and what was small
// enough for the result itself.
//
// Goroutines: Run starts some that make records, and one for the store, and waits for them. There are no locks.
package finished
