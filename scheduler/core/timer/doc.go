// Package timer keeps what is due at which time, for as many things as there are operations, tasks and workers.
//
// A Timer is part of what it is for, and a Heap of them says which is due first. There is no clock:
// who uses it brings the time.
package timer
