// Package finished makes a record of each completed operation, and shows stored records (package
// history) to operators and owners.
//
// Add makes the record at once, while what it is made of is in the caches of the CPU: a tenth of a
// second later that takes three times as long. A record whose command line is not known waits in a
// queue for readers, which take several times a second what waits. If that is full, or the storage
// slow, the record has no command line. No action waits for its record. The package never changes
// an operation, and stores no output: a record has the digests, and output that was small enough for
// the result itself.
//
// Goroutines: Run starts the readers, and one for the store, and waits for them. queue.mu guards the
// queue, and nothing else is done while it is held.
package finished
