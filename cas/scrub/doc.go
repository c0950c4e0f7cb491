// Package scrub reads everything that a store keeps, over and over: what rots on a disk is found
// before somebody needs it, while others still have the right bytes.
//
// # What it refuses
//
// A Scrubber knows no digests and removes nothing. It decides what is read when, and how fast; the Target that it reads
// says what is damaged, and deals with it. It holds the names of one shard, and one piece of one file, in memory; a
// Target may hold more to find what is gone. It leaves the page cache as it found it where the kernel tells what is in
// there (cachestat, Linux 6.5 or later): what was in memory before stays, what only the Scrubber brought goes. What is
// in memory is read from there, so the disk below it is looked at by a later pass.
//
// # A pass
//
// A pass reads each file of all targets once, shard by shard, except what was verified since it
// began. The next one begins a period after that. It goes at the rate that was asked for while nothing else
// needs the disk. Else it goes only as fast as it must to end with the period, and never faster
// than at half of the rate: so a store that is busy day and night is read, too. The position is kept in a small
// file, at most keepEvery old after a crash; a file that is torn is as if there were none.
//
// # Goroutines and locks
//
// Run starts no goroutine and returns soon after its context ends. Scrubber.mu guards what Status
// tells; it is not held during I/O.
package scrub
