// Package stored reads messages from storage for display, each only within a limit of memory. The
// package keeps nothing. It has no goroutines.
package stored
