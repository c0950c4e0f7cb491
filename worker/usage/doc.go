// Package usage reports the resources that a command used in its slot: to the scheduler, to the
// log, and, if the command ran out of memory, to the client. It measures nothing itself and has no
// goroutines.
package usage
