// Package aside keeps the damaged files of a store for its operator, in a folder of a limited size,
// and logs the blob, the damage, and the device of the file.
//
// It does not decide which files are damaged. It has no goroutines. The lock of a Folder is held
// while files are moved and removed: damage is rare.
package aside
