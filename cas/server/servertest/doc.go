// Package servertest is a storage at the other end of a connection in memory, for tests of those
// who talk to one.
package servertest
