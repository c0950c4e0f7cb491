// Package tree reads the Directory messages of REv2 without decoding them: a
// Directory is the encoded message itself and an index of four bytes for each
// entry. Compared with a decoded message it takes a fraction of the memory, gives
// the garbage collector nothing to follow, and takes names in any encoding, where
// Go's protobuf refuses what is not UTF-8.
//
// Parse checks everything that REv2 demands and that Linux can show; what it
// returns cannot fail later. In how bytes become fields it is as tolerant as
// protobuf: unknown fields are skipped, fields come in any order, the last of a
// repeated singular field counts, and messages that are given in parts are merged.
//
// References and SplitTree are for those who only ask what a message names, and
// are content with messages that break the rules.
//
// It refuses to write messages, to fetch them, and to follow them: it knows one
// directory at a time. It has no goroutines and no locks; a Directory is
// immutable and may be shared.
package tree
