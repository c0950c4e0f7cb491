// Package timer keeps the due times of many objects, such as operations, tasks and workers.
//
// A Timer is part of its object, and a Heap of timers knows which is due first. There is no clock:
// the caller passes the time.
package timer
