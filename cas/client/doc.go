// Package client reads and writes blobs and the results of actions of external storage by the
// protocols of REv2. It verifies everything that it passes on. Calls are retried while the server
// is overloaded or down; an error of one blob is returned for that one alone.
//
// All goroutines of a Client end before the call that started them returns. readings.mu is the one
// lock; it is held without I/O.
package client
