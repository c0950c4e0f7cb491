// Package server offers a store of blobs and the results of actions by the protocols of REv2:
// ContentAddressableStorage, ByteStream and ActionCache. It knows a store by what it can (Store), and
// results by Results.
//
// What it reads whole it hashes, and gives out nothing that is wrong. It does whatever it does with
// blobs through the content of the request's instance name. Server.MissingInputs says before an action
// runs what its instance name lacks of its inputs, because workers share theirs. A Reader is the part
// of a Server that only reads.
//
// # Uploads
//
// An upload to a Server that broke off keeps its file, and its room in the store, to
// be resumed. When a client writes and no blob is left to evict, such uploads go, the
// longest idle first, before the write fails.
//
// # Goroutines and locks
//
// It starts no goroutines. upload.io comes before uploads.mu, that before the store's; ownTrees.mu is
// alone. None is held during I/O, a callback or a wait but upload.io, which serializes what is done
// with the file of an upload.
package server
