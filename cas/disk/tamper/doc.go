// Package tamper tells whether somebody else changes a file, or has changed it. Marks tell one state of a file from all
// others of this machine. A lease holds while nobody has the file open in a way that would let him write to it. An Own
// file is written by one writer alone, and its Seal says whether it still is what it was with its last byte.
//
// It refuses to know what the bytes of a file should be, and reads none. It has no goroutines and no locks.
package tamper
