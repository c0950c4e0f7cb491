// Package finished makes a record of each completed operation, and shows stored records (package
// history) to operators and owners.
//
// Add returns at once: the completed operation goes into a queue, and is dropped if that is full;
// no action waits for its record. The package never changes an operation, and stores no output: a
// record has the digests, and output that was small enough for the result itself.
//
// A completed operation costs dispatch little: makers take several times a second what waits, and
// each makes its records in the same memory, one after another.
//
// Goroutines: Run starts the makers, and one for the store, and waits for them. queue.mu guards the
// queue, and nothing else is done while it is held.
package finished
