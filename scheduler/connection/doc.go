// Package connection tells handlers of calls which connection a call came over, and the scheduler when one has ended.
//
// It has no goroutines, and holds no lock while it calls anybody.
package connection
