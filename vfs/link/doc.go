// Package link shows an input root as a folder of hard links to copies of its blobs, if FUSE is not
// available or not wanted. Everything is fetched and linked before the command starts.
//
// A Store holds the copies, for all roots: the files that links point to (copies), and whole
// directories of links that recur (keptTrees). A Layer is the part of one root; Bare is a layer
// that the command itself writes to, if there is no overlay. A listing is the tree that was read, a
// plan the files to make in one folder, and a maker makes them.
//
// The links point to copies of the blobs, never to the store: one inode has one mode and one time,
// so a blob has a copy for each pair that it is used with, and within one root a copy for each
// file. A copy has a verdict of its bytes, and the change time from our own making and removing of
// links: any other change time reveals a write that was covered up.
//
// Reads through the links are invisible. Show waits for the goroutines that it starts; no other
// function starts any.
//
// Locks: copies.mu guards the copies, keptTrees.mu the kept trees, maker.mu the work in progress;
// none is taken while another of them is held, and none is held during I/O. The lock of a
// vouch.Verdict is held while a copy is read, and sharedFile.names is taken below it, while a link
// is made, removed or checked.
package link
