// Package records keeps small records by key. Those that may be lost and those that may not have
// different types and different files:
//
//   - Hints are what similar actions read (profiles) and how they ran (statistics). One may be evicted,
//     and it may be gone after a power cut; it is never another record's bytes, half a record or an
//     older one than was read before. A store of hints that is damaged is set aside and begun anew.
//   - Durable records are quotas, drains and leases. None goes by itself; one that is damaged is an
//     error, which names the file and says what to do.
//
// The package knows nothing of what the records hold, except where it speaks one of Buildbarn's
// services. It refuses values above MaxValueBytes: what is large belongs into the CAS.
//
// # Stores
//
// All pass one conformance suite (conformance_test.go).
//
//   - Bolt: one bbolt file of one process, the default.
//   - Memory: gone with the process; for tests, and for those who want no file.
//   - Redis: servers that several programs share: one, or those that Sentinels watch, or a Cluster.
//   - FSAC and ISCC: Buildbarn's FileSystemAccessCache and InitialSizeClassCache somewhere else.
//     RegisterFSAC and RegisterISCC are the other side, over any Store.
//
// Who uses a store knows it as a record.Hints, and knows of this package nothing else.
//
// # Bounds
//
// Each bucket of a Bolt or Memory has a maximum of bytes; beyond it the records that were not used
// (read or written) for longest go, a tenth of the bucket at a time in a Bolt. Bolt keeps the times
// of last use in memory and writes them with a later commit, so that a read costs no write; a
// crash loses at most a minute of them. A Redis keeps them on the server, with every read and write.
//
// # A store that is away
//
// A call of a Redis, FSAC or ISCC ends within its Timeout, a second, with an error, and nothing is tried
// again: a hint that comes late is of no use. record.Careful, which those who keep hints use, leaves a store
// that failed alone for a moment, and says once that it is away and once that it is back.
//
// # Leases
//
// A Lease is a Durable record by which one program at a time serves; see there for what it is safe
// against.
//
// # Durability of a Bolt
//
// Put returns when the write is queued. Every reader of the Bolt sees it
// from then on; half a second later at the latest it is committed, together with all that was
// queued meanwhile, by one transaction and one fsync. A crash of the process or of the machine loses
// what was queued and not committed. Flush waits for the commit; Close flushes. When a commit fails
// (a full disk) its writes are lost: this is logged once until a commit succeeds again, and the next
// Flush or Close returns it. At most maxQueued bytes wait; a writer that would exceed that waits for
// the commit to take them.
//
// A file that was closed has a checksum of all of it beside it. One that was not, or that the disk has changed since,
// is read with care when it is opened, and what is in it goes to a new file; each record carries a checksum over key
// and value. A file that cannot be read is set aside under another name and a new one begun; a record whose checksum is
// wrong is as good as absent. Should bbolt find fault with the file later on, then it is set aside for the next
// process, and until then all calls fail.
//
// # Goroutines and locks
//
// A Bolt has one goroutine, which commits; Close waits for it. A Redis has those of go-redis, which
// Close ends. Lease.Hold has one for what it runs, and waits for it. The other types have none. queue.mu,
// Memory.mu and Folder.mu are each alone; the first two are not held during I/O or a wait, the last
// serializes writes.
package records
