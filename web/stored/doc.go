// Package stored reads messages that are in storage, for those who show them: each only as far as it takes no more memory
// than it may. The package refuses to keep anything. It has no goroutines.
package stored
