// Package mounts finds the mounts below a folder, and removes those of a dead process. It shows a
// folder as another owner's (As), and mounts FUSE file systems (FUSE).
//
// A process that is killed while one of its threads waits for its own FUSE mount cannot end: a dead
// thread took the request, and the connection ends only with the last thread, which is the waiting
// one. The kernel makes such requests even in mount(2), for an overlay on FUSE. Another process
// must abort the connection. A [Guard], a process beside the owner of the mounts, does this; one that
// is killed is replaced. If owner and guard were killed together, the next user of the dead process's
// folder does, by [Free] or [Lock].
//
// The package never accesses a mount point, since a dead one answers with errors or never. It has
// one goroutine for each Guard, for which Guard.Close waits, and those of a FUSE that answer the
// kernel (package fusedev), for which FUSE.Stop waits. The lock of a Guard is held during no I/O.
package mounts
