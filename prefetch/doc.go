// Package prefetch knows what an action will read before the action asks for it:
// it remembers what runs of similar actions read.
//
// A Recorder gathers what one run reads of its input root. A Profile is a set of
// such paths as a Bloom filter, in exactly the bytes of Buildbarn's File System
// Access Cache, so that profiles can be shared with a farm that has one.
//
// # Which paths
//
// A profile has the directories whose entries a run looked at and the files that
// it opened, both by their path in the input root, and every directory above them.
// Symlinks are not in it: they come with the Directory message that has them. Thus
// nothing below a directory that is not in a profile is in it.
//
// # What it refuses
//
// Everything here is a hint. Whatever is missing, malformed or broken means "not
// foreseen", never an error for the action, and nothing that others send can take
// more memory or time than the bounds beside the code say.
//
// # Goroutines and locks
//
// What remembers has no goroutines of its own. Recorder.setMu comes before
// Recorder.mu; no lock is held during I/O or a callback.
package prefetch
