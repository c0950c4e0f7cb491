// Package machine tells whether machines are alike to commands, so that what a command did on one stands for what it
// would do on another. No account of a run says which files of the machine it looked at; so all that commands may
// see of it have to be the same.
//
// # What is compared
//
// Facts are what the kernel shows: its release, the processors, memory, and the file system that commands write to. Files are all
// that a sandbox shows: Examine makes a digest of their names, owners, modes, times and content. Named leaves files to
// the operator, who says that machines of one name show the same.
//
// # A machine that changes
//
// The name of an examined machine holds from its worker's start on. What commands see was put together then, partly by copying; so
// as soon as one of the files, or a mount, is not as it was, the machine has no name any more until the worker is started anew.
// Files are looked at again (by ctime, without reading them) whenever somebody asks about a time since which nobody has looked.
//
// # What it refuses
//
// In doubt a machine is like no other: while files are being read, when one cannot be, when there are too many.
//
// # Goroutines and locks
//
// An Examined has a goroutine until its files are read or Close is called, and one for each look at all files, which whoever
// asks meanwhile waits for. Examined.mu is held for no I/O.
package machine
