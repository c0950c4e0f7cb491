// Package servertest has a storage server at the other end of an in-memory connection, for tests of
// its clients.
package servertest
