// Package client gets blobs and the results of actions from storage elsewhere, and brings them there,
// by the protocols of REv2. Everything that it passes on is verified. Calls are tried again while the
// server is overloaded or away; what is wrong with one blob is said of that one alone.
//
// All goroutines of a Client end before the call that started them returns. readings.mu is the one
// lock; it is held without I/O.
package client
