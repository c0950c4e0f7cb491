// Package streams makes streams of builds whose actions are simulated commands. Each stream is about
// one thing that commands do and that a choice of size classes must cope with; All lists them. The same
// seed gives the same jobs.
//
// Nothing here is about size classes, or assumes how a run on one tells of another.
package streams
