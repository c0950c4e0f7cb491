// Package bounded has caches with a limit, of weight such as bytes or of a number of entries, and
// cuts texts to a limit. It has no goroutines.
package bounded
