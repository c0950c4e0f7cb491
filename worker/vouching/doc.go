// Package vouching makes the store verify the blobs that one run of a command used, and recognizes
// errors of damaged bytes. The caller decides whether the command runs again.
//
// A Vouching has one goroutine, between End and Close.
package vouching
