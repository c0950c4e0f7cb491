// Package command simulates one command on a machine: its threads share CPUs, its heap is collected
// when it is full, and what its files lack in page cache is read from the disk again. How long the
// command takes follows from that alone; the package knows nothing of how size classes are chosen.
//
// It has no clock and no randomness: the same command on the same machine gives the same result.
package command
