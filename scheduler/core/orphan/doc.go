// Package orphan keeps results that workers held when nobody had asked for them, as after a restart of the scheduler,
// for clients to come back to.
package orphan
