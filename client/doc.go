// Package client is the client side of REv2 execution for the project's own
// commands: it turns local folders into an input root (Scan), has a command run
// on them (Execute), and brings the outputs back (Download, Output).
//
// # What it refuses
//
// Scan takes regular files, directories and symlinks, and fails at anything else
// rather than leaving it out. It reads a file twice, to hash and to upload it: a
// file that changes in between fails the upload. Download does not write outside
// the folder it is given, whatever the result says, and makes no symlink that
// leads out of it. The package keeps nothing between calls: it has no cache of
// digests, and is not a build tool.
//
// # Goroutines and locks
//
// Every goroutine ends before the call that started it returns, except as gRPC
// needs to take down a stream whose context is cancelled. No lock is held while
// a callback or I/O runs; callbacks given to the package must not block.
package client
