// Package machine decides whether machines are alike to commands, so that a run on one machine
// predicts a run on another. No record of a run has the files of the machine that it read; so
// everything that commands may see of the machine must be equal.
//
// # What is compared
//
// Facts are the kernel's: its release, the processors, memory, and the file system that commands
// write to. Files are all that a sandbox shows: Examine computes a digest of their names, owners,
// modes, times and content. Named leaves files to the operator, who declares that machines of one
// name have the same.
//
// # A machine that changes
//
// The name of an examined machine is valid from its worker's start on. The commands' view was
// prepared then, partly by copying; so as soon as one of the files, or a mount, changes, the
// machine has no name any more until the worker restarts. Files are checked again (by ctime,
// without reading them) when a caller asks about a time that no check covers.
//
// # What it refuses
//
// In doubt a machine is like no other: while files are being read, when one cannot be read, when
// there are too many.
//
// # Goroutines and locks
//
// An Examined has a goroutine until its files are read or Close is called, and one for each check
// of all files, which all callers meanwhile wait for. Examined.mu is held for no I/O.
package machine
