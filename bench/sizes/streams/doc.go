// Package streams makes streams of builds. In most of them actions are simulated commands, and each
// stream exercises one behaviour of commands that a choice of size classes must cope with; All lists
// them. In those that Recorded lists, actions run as recorded commands did. The same seed gives the
// same jobs.
//
// The package does not know size classes, and assumes nothing about how runs on one class predict
// runs on another.
package streams
