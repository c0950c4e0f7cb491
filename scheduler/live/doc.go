// Package live passes the output of running commands from their workers to readers.
//
// A Registry knows the workers that offer output, and its readers. Its Service is for workers; its
// ByteStream is for clients. It also keeps each worker's latest report, and wakes workers that
// should call the scheduler. All of it is a hint: nothing here delays an action, and the result has
// the output that came too late.
//
// The package stores no output, except a chunk that waits for its reader. It starts no goroutines.
// Nobody holds another lock together with the lock of a Registry.
package live
