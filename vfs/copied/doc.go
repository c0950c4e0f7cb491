// Package copied shows the inputs of a small root in a plain folder, by a copy of each. The copies
// are files of the action's own, as those that it makes, so the root needs neither a mount nor a
// layer for written files: for a few files, these cost more than the copies.
//
// Read takes a whole tree into memory, if it is small enough and each of its blobs is local and
// right. A Copier then writes it to a folder, and watches which of the copies are opened.
//
// Copier.mu guards the watches of all roots. It is not held while a hook or a function is called.
package copied
