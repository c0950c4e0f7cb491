// Package overlay puts a writable layer over the folders that show an input root, so that what an
// action does to its inputs stays its own, and tells what it did from what overlayfs left there.
//
// A Layer is the overlay of one root: Show mounts it, Unchanged and Written look at its upper
// folder, Hide unmounts it. What lies below it, it is told as a Stack of folders, whoever shows them.
//
// It refuses to look at the mount itself, through which an action could lead it elsewhere, and to
// make or remove the folder of the writable layer. It has no goroutines and no locks: Show and Hide
// are called one after the other, everything else may be called concurrently between them.
package overlay
