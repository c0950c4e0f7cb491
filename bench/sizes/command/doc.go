// Package command simulates one command on a machine. Its threads share the CPUs. Its heap is
// collected when it is full. Pages of its files that the page cache lacks are read from the disk
// again. The duration follows from that alone; the package does not know how size classes are
// chosen.
//
// It has no clock and no randomness: the same command on the same machine gives the same result.
package command
