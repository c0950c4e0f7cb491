// Package completed opens a scheduler's records of completed operations as its flags require, and
// passes them to the schedulers that replace it.
//
// Open starts no goroutine; Records.Run runs until its context ends. Follow starts one, and the
// function that it returns waits for that.
package completed
