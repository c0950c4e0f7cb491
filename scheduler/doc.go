// Package scheduler serves the decisions of package core, which worker runs which action, over gRPC.
//
// Server joins parts that each have a job, and registers their services. The engine drives core.State: it has the lock and
// the clock, the streams that follow operations and the calls of workers that are held. requests make operations of what
// clients ask for, with the storage; operations submits them and sends their states; queueService has the calls of workers;
// learning chooses size classes and learns from runs; endings count, log and trace what is over. adminService is what operators
// call, put together of a type for each thing they look at or change: workers, queues, operations, quotas, sizes, stores.
//
// The package refuses to look into input roots and to write the action cache (the
// worker does, which alone knows what shaped a result).
//
// Goroutines: Server.Run starts one that writes what was learned, one that writes the Index, and two
// that watch quotas, where there are such, and waits for them. It and journal.Journal.Run are the caller's
// goroutines and every RPC runs on gRPC's.
//
// Lock order: engine.mu guards core.State and both registries of those who wait
// (streams and held calls). Nothing is sent, stored, logged or fetched while it is
// held, but that mailboxes are filled. mailbox.mu and the journal's are taken with engine.mu or
// without it; they take nothing. workersAdmin.keeping and quotas.keeping are taken before engine.mu.
package scheduler
