// Package scheduler serves the decisions of package core (which worker runs which action) over
// gRPC.
//
// Server connects these packages and registers their services:
//
//	connection  identifies the connection of a call
//	engine      the lock and the clock of core.State, and waiting streams and calls
//	operation   operations as clients send and see them
//	learning    learns size classes of actions from their runs
//	live        sends the output of commands from workers to readers
//	operators   requests of operators
//	pastruns    finds earlier runs whose results are also those of new actions
//
// This package has the services for clients and workers: executionService submits operations and
// streams their states, queueService serves workers; endings count, log and trace operations that
// ended.
//
// The package runs nothing, so it writes no result of its own to the action cache: the worker
// writes it, because only the worker knows what influenced a result. Only for an action with the
// result of an earlier run (package pastruns) does it compare directories of the input root and write
// that result under the action.
//
// Goroutines: Server.Run starts one that writes what was learned, one that writes the Index, and
// two that watch quotas, if there are quotas, and waits for them. Run and journal.Journal.Run run
// on the caller's goroutines; every RPC runs on gRPC's.
//
// Lock order: the engine's lock comes first. Nobody holds another lock when taking the locks of
// peers and metrics.
package scheduler
