// Package fuse shows an input root through a read-only FUSE mount that asks for a directory or a
// file only when a process does.
//
// A Layer is what one root shows; a Driver is shared by the layers of all roots. A Mount mounts and
// serves for a layer, which may take one over that was made ahead. Inside, a handler answers the
// kernel, a nodeTable has the paths that the kernel knows, a blobTable the open blobs, and an
// access is a request that may have to wait for the Source. Hooks get the events of a layer; the
// package does not know their owners.
//
// If metadata images show a part of the root, Images says which. Then the mount has two folders:
// the inputs that images lack, and blobs by their paths, for overlayfs to take the data of images
// from.
//
// # Files that arrive
//
// If the Source is an ArrivingSource, a large file is opened before it is there. Its reads come to
// this process and wait for their bytes; they go through the page cache, so the file can be mapped
// and run. A path that is still open is opened the same way again when the blob is complete: the
// kernel does not have one inode both ways. If the blob does not match its digest, the kernel's
// pages of it are dropped, and reads and opens fail from then on.
//
// # What it refuses to do
//
// It never forks: package mounts opens the device and mounts, so no fusermount is run and children do
// not inherit the device. No code in this process may open files below the mount, or map them, or run
// programs from them: the thread that waits for FUSE could be the one that serves it.
//
// # Goroutines and locks
//
// The requests of a Mount are answered by one goroutine, until an access has to wait (package
// fusedev). A Layer owns these goroutines, one for each access that waits for the Source, and one
// for each file that arrives. Hide ends them and waits, so a Source must return when its context
// ends. An access whose process is being killed returns at once; other signals do not disturb it.
//
// nodeTable.mu guards the nodes, blobTable.mu the open blobs, stallClock.mu the stall clock,
// Layer.mu the first error. None is taken while another is held, and none is held while the Source
// or a hook is called.
package fuse
