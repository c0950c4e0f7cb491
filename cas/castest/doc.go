// Package castest is what every store of blobs has to pass, for tests, and a store in memory that
// passes it.
package castest
