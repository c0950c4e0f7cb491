// Package span computes with parts of a blob. It has no goroutines and no locks.
package span
