// Package castest has the tests that every store of blobs must pass, and a store in memory that
// passes them.
package castest
