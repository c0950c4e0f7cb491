// Package engine drives the scheduler's core: it has the lock and the clock, and delivers what the core decides.
//
// An Engine passes events to core.State and to the journal, puts new states of operations into the Mailboxes of the
// streams that follow them, and answers the calls of workers that wait. What else has to be done it leaves to one function.
// The package knows nothing of RPCs, callers and storage.
//
// Goroutines: none of its own; Run is the caller's.
//
// Lock order: Engine.mu guards core.State and the registries of those who wait. Nothing is sent, stored, logged or fetched
// while it is held; Mailboxes are filled. Mailbox.mu and the journal's lock are taken with Engine.mu or without it, and take
// nothing.
package engine
