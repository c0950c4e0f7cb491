// Package fetch shows a store that gets what it lacks from upstream: each blob once, however many
// ask for it (ReadThrough), in the order of who waits for it, and large ones while they come
// (Arrival). What is under way belongs to a Group, of which a store has one; the store knows
// nothing of it.
//
// # What nobody waits for
//
// Prefetch fills the store ahead of those who will read from it. What waits for its
// turn has nothing that they could need: calls are bounded for the whole Group, those for parts too, a
// PatientFetcher keeps some of its own for others, nothing is pinned, and a blob that
// somebody asks for leaves its queue for the next call. Its calls run in goroutines
// like those of other fetches.
//
// # Large blobs
//
// A large blob can be read before it is whole, by those who ask for an Arrival: its file has
// holes, which are filled from where somebody reads and from the start. It takes room in the
// store as its bytes come, is hashed in the end like any other, and only then appears. What was
// read of one that proves wrong cannot be taken back; its readers are told.
//
// PrefetchRanges has known parts of one come before anybody opens it. There is no proof of a part alone,
// so whoever opens it has the rest come, too, and it is all hashed before it is right. A part that is foreseen delays
// nobody: before anything of it has come, who reads it is given a stream of his own, and who waits for
// all of the blob does not wait for its parts.
//
// # Directories
//
// Directory messages are kept as they are encoded (cas/tree), in one cache of the Group, bounded
// by the memory that they hold. What is gone from it is read from disk again, or from upstream.
// Names need not be UTF-8, except where REv2 wants them in another message: then that call fails.
//
// # Goroutines
//
// A fetch runs in a goroutine that may outlive the caller that started it, for others may have
// joined: it is cancelled when its last asker leaves, and Group.Close waits for all of them. An
// arriving blob has one such goroutine, which starts and awaits a few streams.
//
// # Locks
//
// delivery.mu comes before flights.mu, that before arrival.mu and the store's. memory.mu and Arrival.mu
// are each alone. None is held during I/O, a callback or a wait.
package fetch
