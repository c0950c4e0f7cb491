// Package tree reads the Directory messages of REv2 without decoding them: a Directory is the
// encoded message itself and an index of four bytes for each entry. Compared with a decoded message
// it takes a fraction of the memory, has no pointers for the garbage collector, and accepts names
// in any encoding, while Go's protobuf rejects names that are not UTF-8.
//
// Parse checks all rules of REv2 and the limits of Linux; its result cannot fail later. It decodes
// fields as tolerantly as protobuf: unknown fields are skipped, fields come in any order, the last
// of a repeated singular field counts, and messages in parts are merged.
//
// References and SplitTree are for callers that need only the digests in a message, and accept
// messages that break the rules.
//
// The package does not write, fetch or follow messages: it knows one directory at a time. It has no
// goroutines and no locks; a Directory is immutable and may be shared.
package tree
