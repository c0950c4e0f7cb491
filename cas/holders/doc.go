// Package holders says which instance names have which blobs of a storage whose bytes they share.
//
// A Table holds the sets of names that blobs have, each set once: a blob has a pointer to its set, so that it costs
// eight bytes however many blobs there are, and farms have few sets. Changes are what happens to blobs, encoded as it
// is written to a file, and Read tells it again.
//
// It knows neither blobs nor files, has no goroutines and takes no locks: the store of the blobs
// guards it with its own. Names are kept as their SHA-256, so that long ones cost no more than others.
package holders
