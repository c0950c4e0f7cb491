// Package span is arithmetic of parts of a blob. It has no goroutines and no locks.
package span
