// Package streams makes streams of builds whose actions are simulated commands. Each stream
// exercises one behaviour of commands that a choice of size classes must cope with; All lists the
// streams. The same seed gives the same jobs.
//
// The package does not know size classes, and assumes nothing about how runs on one class predict
// runs on another.
package streams
