// Package programs runs the three programs as an operator does: built, from outside, with signals.
// It is for tests of whole farms, which share what is here: programs that are built once, folders
// that commands see, what a worker may not leave behind.
//
// Everything that a Test starts ends with the test, also when that is killed. Each process has one
// goroutine, which waits for its end. All folders are below /var/tmp and go with the test. The lock
// of an Output is held for no longer than a copy.
//
// Where the machine lacks something a test is skipped; with CI set in the environment it fails.
package programs
