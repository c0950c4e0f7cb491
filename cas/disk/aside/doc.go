// Package aside keeps the damaged files of a store for its operator, in a folder of a bounded size, and tells of them in the
// log: which blob it was, what is wrong, and on which device the file lay.
//
// It refuses to judge what is damaged. It has no goroutines. The lock of a Folder is held while files are moved and removed:
// damage is rare.
package aside
