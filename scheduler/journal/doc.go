// Package journal writes down what a core.State is told, and makes the same State of it again.
//
// A recording is a sequence of forerunner.record.Event messages, each with its length before it. The package
// refuses to record what State does not look at: commands and contents of files.
//
// Journal.Run is the caller's goroutine. Journal.mu is taken with any other lock or without; it takes nothing.
package journal
