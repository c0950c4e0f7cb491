// Package pause waits for a time that a context can cut short. It has no goroutines.
package pause
