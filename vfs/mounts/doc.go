// Package mounts knows the mounts below a folder, and takes away those of a process that is dead. It shows a folder as another
// owner's (As), and mounts what is served by FUSE (FUSE).
//
// A process that is killed while one of its own threads waits for a FUSE mount that it serves
// itself cannot end: the request was taken by a thread that is gone, and the connection ends
// only with the last thread, which is the one that waits. The kernel makes such requests even
// in mount(2), for an overlay that lies on FUSE. Somebody else has to abort the connection.
// A [Guard] does it, a process beside the one that has the mounts. Where the guard was killed, too, whoever wants the dead
// one's folder does, by [Free] or [Lock].
//
// It looks at no mount point, since a dead one answers with errors or never. It has no locks of its own, and no goroutines but
// those of go-fuse that serve a FUSE, for which FUSE.Stop waits.
package mounts
