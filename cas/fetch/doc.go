// Package fetch provides a store that fetches missing blobs from upstream: each blob once for all
// callers (ReadThrough), in the order of waiting callers, and large ones readable while they arrive
// (Arrival). Fetches in progress belong to a Group, of which a store has one; the store does not
// know it.
//
// # Prefetching
//
// Prefetch fills the store before its readers. Blobs in its queue hold nothing that waiting callers
// need: calls are limited for the whole Group, those for parts too, a PatientFetcher keeps some of
// its own for others, nothing is pinned, and a blob that another caller asks for moves from the
// queue to the next call. Its calls run in goroutines like those of other fetches.
//
// After Yield, prefetched large blobs also give up their share of the link while a caller waits for
// a blob that was not prefetched.
//
// # Large blobs
//
// A large blob can be read before it is complete, by callers that ask for an Arrival: its file has
// holes, which are filled from the readers' positions and from the start. It takes room in the
// store as its bytes come, is hashed in the end like any other, and only then appears. Bytes that
// were read of a blob that proves wrong cannot be taken back; its readers get an error.
//
// PrefetchRanges fetches known parts of a blob before it is opened. A part alone cannot be
// verified, so when a caller opens it the rest is fetched, too, and all of it is hashed. A
// predicted part delays no caller: until its first byte has come, a reader of it gets a stream of
// its own, and a caller that waits for the whole blob does not wait for its parts.
//
// # Directories
//
// Directory messages are kept in encoded form (cas/tree), in one cache of the Group, limited by
// memory. Directories that are no longer in it are read from disk again, or from upstream. Names
// need not be UTF-8, except if REv2 requires it in another message: then that call fails.
//
// PrefetchTree fills the cache with the directories of a tree, which are not stored. Callers that
// wait for one of them have it as soon as it comes.
//
// # Goroutines
//
// A fetch runs in a goroutine that may outlive the caller that started it, because others may have
// joined: it is cancelled when its last caller leaves, and Group.Close waits for all of them. An
// arriving blob has one such goroutine, which starts and awaits a few streams.
//
// # Locks
//
// delivery.mu comes before flights.mu, that before arrival.mu and the store's. Arrival.mu and
// trees.mu are each alone. None is held during I/O, a callback or a wait.
package fetch
