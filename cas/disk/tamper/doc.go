// Package tamper detects changes of a file by others. Marks distinguish one state of a file from
// all others on this machine. A lease holds while no other process has the file open for writing.
// An Own file has a single writer, and its Seal says whether the file is still unchanged since its
// last byte.
//
// The package does not know the right bytes of a file, and reads none. It has no goroutines and no
// locks.
package tamper
