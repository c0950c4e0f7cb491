// Package stored reads messages from storage for display. Each read has a memory limit. The package
// keeps no data and has no goroutines.
package stored
