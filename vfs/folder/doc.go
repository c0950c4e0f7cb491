// Package folder makes, measures and removes the folders that commands write to: whatever they
// left there, however deep, and whoever it belongs to.
//
// A Folder is an empty folder that can serve again while it is untouched. RemoveTree removes
// one with all below, Trash does so later, Usage says how much there is, and Writable whether a file can be written.
//
// It refuses to follow a symlink, and to hold more than a few descriptors at a time. A Trash has one
// goroutine, while there is anything to remove; Close waits for it. Its mutex guards the queue and is
// not held during I/O.
package folder
