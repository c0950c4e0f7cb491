// Package sizes simulates the choice of size classes over streams of actions, without workers and
// in virtual time.
package sizes
