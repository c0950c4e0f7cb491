// Package journal records the events of a core.State, and rebuilds the same State from them.
//
// A recording is a sequence of forerunner.record.Event messages, each with its length before it.
// The package does not record data that State does not read: commands and contents of files.
//
// Journal.Run runs on the caller's goroutine. Journal.mu is taken with any other lock or without;
// nothing is locked under it.
package journal
