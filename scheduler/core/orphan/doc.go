// Package orphan keeps results that workers had for no known operation, as after a restart of the
// scheduler, for clients that come back.
package orphan
