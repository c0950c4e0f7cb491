// Package folder holds the folder in which a store keeps its files: for one process at a time, with
// a folder for unfinished files.
//
// If the disk has lost a part of it, or a wrong type of file is in its place, the package moves
// that away for the operator, so that the store opens without it. It removes only unfinished files,
// and does not interpret files. It has no goroutines and no locks.
package folder
