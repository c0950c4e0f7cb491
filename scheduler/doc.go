// Package scheduler serves the decisions of package core, which worker runs which action, over gRPC.
//
// Server is a thin half around core.State: the lock, the clock, the names of operations, storage, what is
// learned of size classes and the RPCs (REv2 Execution and Capabilities, longrunning Operations, Buildbarn's
// OperationQueue, our own admin service).
//
// The package refuses to look into input roots and to write the action cache (the
// worker does, which alone knows what shaped a result).
//
// Goroutines: Server.Run starts one that writes what was learned, one that writes the Index, and two
// that watch quotas, where there are such, and waits for them. It and journal.Journal.Run are the caller's
// goroutines and every RPC runs on gRPC's.
//
// Lock order: Server.mu guards core.State and both registries of those who wait
// (streams and held calls). Nothing is sent, stored, logged or fetched while it is
// held, but that mailboxes are filled. mailbox.mu and the journal's are taken with Server.mu or
// without it; they take nothing. Server.keeping is taken before Server.mu.
package scheduler
