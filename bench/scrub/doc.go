// Package scrub measures what it costs to verify a store (again and again, and while others read
// it), and to open one.
package scrub
