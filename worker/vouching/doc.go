// Package vouching has the store verify what one run of a command used, and says whether an error is one of
// bytes that were found damaged. Whether the command is run again is for others to decide.
//
// A Vouching has one goroutine, between End and Close.
package vouching
