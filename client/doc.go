// Package client is the client side of REv2 execution for the project's commands: it turns local
// folders into an input root (Scan), executes a command on them (Execute), and downloads the
// outputs (Download, Output).
//
// # What it rejects
//
// Scan accepts regular files, directories and symlinks, and fails on anything else rather than omit
// it. It reads a file twice, to hash it and to upload it. The upload fails if the file changes in
// between. Download never writes outside its folder, whatever the result says, and creates no
// symlink to the outside. The package keeps nothing between calls: it has no cache of digests, and
// is not a build tool.
//
// # Goroutines and locks
//
// Every goroutine ends before the call that started it returns, except the goroutines of gRPC that
// close a stream whose context is cancelled. No lock is held during a callback or I/O. Callbacks
// must not block.
package client
