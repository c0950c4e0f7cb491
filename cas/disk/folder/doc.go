// Package folder holds the folder in which a store keeps its files: for one process at a time, with
// a folder for files that are not whole yet.
//
// What the disk has lost of it, or what is in the place of something else, the package moves away
// for whoever looks at the disk, so that the store opens without it. It refuses to remove anything
// but files that were not whole, and to know what the files are. It has no goroutines and no locks.
package folder
