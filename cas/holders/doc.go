// Package holders records which instance names have which blobs in a shared storage.
//
// A Table holds the sets of names, each set once: a blob has a pointer to its set, so that it costs
// eight bytes however many blobs there are, and farms have few sets. Changes are encoded changes of
// blobs' holders for a file, and Read decodes them.
//
// The package knows neither blobs nor files, has no goroutines and takes no locks: the store of the
// blobs guards it with its own. Names are kept as their SHA-256, so that long ones cost no more
// than others.
package holders
