// Package server serves a store of blobs and the results of actions by the protocols of REv2:
// ContentAddressableStorage, ByteStream and ActionCache. It uses any Store, and any Results.
//
// It hashes blobs that it reads completely, and sends nothing that is wrong. It accesses blobs
// through the content of the request's instance name. Server.MissingInputs finds, before an action
// runs, the inputs that its instance name lacks, because workers share theirs. A Reader is the
// read-only part of a Server. Server.ReadBlob, for the program itself, finds small blobs that an
// instance name has just uploaded in memory.
//
// # Uploads
//
// A broken upload keeps its file, and its room in the store, to be resumed. When a client writes
// and no blob is left to evict, such uploads are dropped, the longest idle first, before the write
// fails.
//
// # Goroutines and locks
//
// It starts no goroutines. upload.io comes before uploads.mu, that before the store's; ownTrees.mu
// and the lock of the recent blobs are alone. None is held during I/O, a callback or a wait except
// upload.io, which serializes access to the file of an upload.
package server
