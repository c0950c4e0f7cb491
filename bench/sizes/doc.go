// Package sizes simulates the choice of size classes for streams of actions, without workers and in
// virtual time.
package sizes
