// Package overlay puts a writable layer over the folders that show an input root, so that changes
// of an action stay private, and finds these changes in the files of overlayfs.
//
// A Layer is the overlay of one root: Show mounts it, Unchanged and Written read its upper folder,
// Hide unmounts it. A Stack of folders lists the layers below, independent of their type.
//
// It never accesses the mount itself, through which an action could redirect it, and it neither
// makes nor removes the folder of the writable layer. It has no goroutines and no locks: Show and
// Hide are called one after the other, everything else may be called concurrently between them.
package overlay
