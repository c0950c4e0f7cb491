// Package scrub has a store read again, as flags say, while the program serves.
package scrub
