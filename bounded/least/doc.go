// Package least keeps the least of many values, in the caller's order, without keeping them all. A
// List belongs to one goroutine.
package least
