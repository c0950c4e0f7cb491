// Package folder makes, measures and removes the folders that commands write to: with any contents,
// of any depth and any owner.
//
// A Folder is an empty folder that can be reused while it is untouched. RemoveTree removes a folder
// with everything below, Trash does so later, Usage returns the disk usage, and Writable whether a
// file can be written. Spread and Scatter keep new files away from removed ones, on disks where
// that is faster.
//
// The package never follows a symlink, and holds only a few descriptors at a time. A Trash has one
// goroutine while there is anything to remove; Close waits for it. Its mutex guards the queue. No
// mutex here is held during I/O.
package folder
