// Package fusedev answers the kernel's requests to a FUSE mount.
//
// go-fuse has the protocol: what a request is, and how an answer looks. A [Conn] reads the requests
// and writes the answers. go-fuse's own server reads with a system call that waits, and a goroutine
// in a system call keeps its processor of the Go runtime until the runtime's monitor takes it away,
// which may be a millisecond later. With an input root for each action, most processors were held
// that way, and what served other roots had to wait.
//
// # Who reads
//
// One goroutine has the turn: it reads a request, answers it, and reads the next. It waits for one as
// for a network connection, without a processor. Only if many requests came in quick succession, as
// from a command that looks at many files, it waits a moment in the kernel, which is quicker.
//
// An answer that has to wait for something gives up the turn ([Conn.Pass]), and one that takes long
// loses it. Another goroutine reads from then on, and the first one ends with its answer. If requests
// are always there already, several processes ask at a time: then helpers answer, too, until none is
// left.
//
// A Conn owns these goroutines; Serve returns when all have ended. It holds no lock.
package fusedev
