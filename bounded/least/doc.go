// Package least keeps the least values of many, in an order of the caller's, without keeping them
// all. A List belongs to one goroutine.
package least
