// Package lookback decides whether an earlier run of a command would see the same in another input
// tree, so that its result can be reused. Workers and the scheduler share it.
//
// # What is recorded
//
// A Recorder collects every lookup of a run in its inputs: existing and missing names, listed
// directories, opened files, followed links. With the input tree that makes an exact record of what
// the run saw: a hash of the attributes, the content or the names behind each lookup. It contains
// no filter and nothing that could match by chance.
//
// # When a run would see the same
//
// The run's lookups in the new tree must show the same. Directories with the same digest are
// skipped, so nothing below them is read. A listed directory must have the same names and kinds, a
// missing name must still be missing, a name that was only looked up must have the same kind,
// permissions, time and size (for a symlink the length of its target), an opened file the same
// content. All blobs of the result must still be in the storage.
//
// # What it refuses
//
// A record that is damaged or of another tree, a directory that cannot be read, a missing blob:
// each means that the run is not reused, and none is an error. It does not know how and where
// commands run: its callers compare only runs of the same command, under the same circumstances.
//
// It has no goroutines. Recorder.mu is the only lock; nothing blocks under it.
package lookback
