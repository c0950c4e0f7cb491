// Package scratch bounds the bytes that the files of a running command take.
//
// To measure files is to walk over all of them. A [Watch] does so only when there may be more: it
// asks their file systems how much of them is used, which costs nothing, and walks when that has
// grown by a part of what the command may still write. Where a file system does not tell at once,
// and every few seconds, it walks in any case, and when the command has ended, unless that was soon
// and the file systems have hardly grown.
//
// The goroutines of a Watch end before [Watch.End] returns.
package scratch
