// Package live passes what commands print, while they run, from their workers to those who read it.
//
// A Registry knows the workers that show output, and those who read it. Its Service is what workers call; its ByteStream is what
// clients read. It also keeps each worker's latest report, and wakes workers that are to call the scheduler. All of it is a hint:
// nothing here delays an action, and what was too late to be read is in the result.
//
// The package keeps no output: a chunk waits for its reader, and nothing else. It starts no goroutines. The lock of a Registry is
// taken without any other, and takes none.
package live
