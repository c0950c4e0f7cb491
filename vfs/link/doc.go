// Package link shows an input root as a folder of hard links to copies of its blobs, where FUSE is not
// to be had, or not wanted. Everything is fetched and linked before the command starts.
//
// A Store holds the copies, for all roots: the files that links lead to (copies), and whole directories of links that
// recur (keptTrees). A Layer is what one root shows of them; Bare is a layer that the command itself
// writes to, for want of an overlay. A listing is the tree that was read, a plan what is to be made of
// it in one folder, and a maker makes that.
//
// The links lead to copies of the blobs, never to the store: one inode has one mode and one time, so a
// blob has a copy for each pair it is used with, and within one root a copy for each file. A copy has a
// verdict of its bytes, and the change time that our own making and removing of links gave it: by
// another one a write is found out that was covered up.
//
// It refuses to see what is read of the links. Show waits for the goroutines that it starts; nothing
// else starts any.
//
// Locks: copies.mu guards the copies, keptTrees.mu the kept trees, maker.mu what is being made; none is
// taken while another of them is held, and none is held during I/O. The lock of a vouch.Verdict is held while a
// copy is read, and sharedFile.names is taken below it, while a link is made or removed or looked at.
package link
