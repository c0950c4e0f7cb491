// Package orphan keeps results of unknown operations, which workers report after a restart of the
// scheduler, for clients that come back.
package orphan
