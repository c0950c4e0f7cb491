// Package records keeps small records by key. Records that may be lost and records that may not be
// lost have different types and different files:
//
//   - Hints say which files similar actions read (profiles) and how they ran (statistics). A store may
//     evict a hint or lose it in a power failure. A read never returns another record's bytes, half a
//     record, or an older record than an earlier read did. A damaged store of hints is renamed, and a
//     new one is started.
//   - Durable records are quotas, drains and leases. A store never drops one. A damaged record is an
//     error, which names the file and says what to do.
//
// The package does not interpret records, except where it speaks one of Buildbarn's services. It
// rejects values above MaxValueBytes: large values belong in the CAS.
//
// # Stores
//
// All stores pass one conformance suite (conformance_test.go).
//
//   - Bolt: one bbolt file of one process, the default.
//   - Memory: lost when the process ends; for tests and for programs without a file.
//   - Redis: servers that several programs share: a single server, servers behind Sentinels, or a
//     Cluster.
//   - FSAC and ISCC: a remote Buildbarn FileSystemAccessCache and InitialSizeClassCache.
//     RegisterFSAC and RegisterISCC serve these over any Store.
//
// Callers see a store as a record.Hints and need nothing else from this package.
//
// # Limits
//
// Each bucket of a Bolt or Memory has a maximum of bytes. Above it, the least recently used (read
// or written) records are evicted; a Bolt evicts a tenth of the bucket at a time. Bolt keeps the
// times of last use in memory and writes them with a later commit, so a read costs no write; a
// crash loses at most a minute of them. Redis updates them on the server with every read and write.
//
// # Unavailable stores
//
// A call of Redis, FSAC or ISCC ends with an error after its Timeout, one second, and is not
// retried: a late hint is useless. record.Careful wraps each store of hints and pauses calls to a
// store after a failure. It logs once that the store is unavailable and once that it is available
// again.
//
// # Leases
//
// A Lease is a Durable record that lets one program at a time serve. See Lease for the failures
// that it tolerates.
//
// # Durability of a Bolt
//
// Put returns when the write is queued. Every reader of the Bolt sees the write from then on. At
// most half a second later, one transaction with one fsync commits everything in the queue. A crash
// of the process or of the machine loses writes that were queued and not committed. Flush waits for
// the commit; Close flushes. When a commit fails (a full disk), its writes are lost: this is logged
// once until a commit succeeds again, and the next Flush or Close returns the error. At most
// maxQueued bytes are queued; a writer that would exceed this waits for a commit.
//
// Close writes a checksum of the whole file beside it. If the file was not closed, or changed
// since, the next open checks each record, whose checksum covers key and value, and copies the
// valid ones to a new file. Records with a wrong checksum are dropped. A file that cannot be read
// is renamed, and a new one is started. If bbolt finds an error in the file later, all calls fail
// until the process ends, and the next process renames the file.
//
// # Goroutines and locks
//
// A Bolt has one goroutine, which commits; Close waits for it. A Redis has those of go-redis, which
// Close ends. Lease.Hold has one goroutine for its callback, and waits for it. The other types have
// none. Nobody holds two of queue.mu, Memory.mu and Folder.mu. The first two are not held during
// I/O or a wait; the last serializes writes.
package records
