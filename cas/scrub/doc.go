// Package scrub reads everything in a store again and again: it finds damage on a disk before a
// caller needs the file, while others still have the right bytes.
//
// # Structure
//
// A Scrubber knows no digests and removes nothing. It decides the order and the rate of reads; its
// Target finds damage and handles it. The Scrubber holds the names of one shard, and one piece of
// one file, in memory; a Target may hold more to find missing files. If the kernel reports its
// contents (cachestat, Linux 6.5 or later), the page cache stays as it was: cached pages stay, and
// pages that only the Scrubber loaded are dropped. Cached pages are read from memory, so a later
// pass checks the disk below them.
//
// # A pass
//
// A pass reads each file of all targets once, shard by shard, except files that were verified since
// it began. The next one begins a period after that. It runs at the configured rate while nothing
// else needs the disk. Otherwise it runs only as fast as it must to end with the period, and never
// faster than half of the rate: so even a store that is always busy is read. A small file keeps the
// position, at most keepEvery old after a crash; a torn file is ignored.
//
// # Goroutines and locks
//
// Run starts no goroutine and returns soon after its context ends. Scrubber.mu guards the data of
// Status; it is not held during I/O.
package scrub
