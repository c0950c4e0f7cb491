// Package engine drives the scheduler's core: it has the lock and the clock, and delivers the
// decisions of the core.
//
// An Engine passes events to core.State and to the journal, puts new states of operations into the
// Mailboxes of the streams that follow them, and answers the calls of waiting workers. It passes
// everything else to one function. The package knows nothing of RPCs, callers and storage.
//
// Goroutines: none; Run runs on the caller's.
//
// Lock order: Engine.mu guards core.State and the registries of waiting calls. Nothing is sent,
// stored, logged or fetched while it is held; Mailboxes are filled. Mailbox.mu and the journal's
// lock are taken with Engine.mu or without it; nothing is locked under them.
package engine
