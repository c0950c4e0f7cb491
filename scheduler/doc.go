// Package scheduler serves the decisions of package core, which worker runs which action, over gRPC.
//
// Server joins parts that each have a job, and registers their services:
//
//	connection  over which connection a call came
//	engine      the lock and the clock of core.State, the streams and calls that wait
//	operation   operations as clients send and see them
//	learning    size classes of actions, learned from their runs
//	live        what commands print, from workers to readers
//	operators   what operators ask and say
//
// Here are the services of clients and workers: executionService submits operations and sends their states, queueService has the
// calls of workers; endings count, log and trace what is over.
//
// The package refuses to look into input roots and to write the action cache (the
// worker does, which alone knows what shaped a result).
//
// Goroutines: Server.Run starts one that writes what was learned, one that writes the Index, and two
// that watch quotas, where there are such, and waits for them. It and journal.Journal.Run are the caller's
// goroutines and every RPC runs on gRPC's.
//
// Lock order: the engine's comes first. The locks of peers and metrics are taken without any other.
package scheduler
