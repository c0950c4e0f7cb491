// Package scrub measures how fast a store is read again.
package scrub
