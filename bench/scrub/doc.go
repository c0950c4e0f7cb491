// Package scrub measures the cost of verifying a store, by scrubbing and when others read it, and
// of opening a large store.
package scrub
