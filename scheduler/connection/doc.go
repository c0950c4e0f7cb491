// Package connection tells handlers the connection of a call and the boot id of the calling worker,
// and tells the scheduler when a connection has ended.
//
// It has no goroutines, and holds no lock during a callback.
package connection
