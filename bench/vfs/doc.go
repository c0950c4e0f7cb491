// Package vfs measures input roots against plain folders, as rows of vfs.json.
//
// It serves FUSE in its own process, so all that it runs after the setup is started by a launcher, and it never
// looks below its own mounts. What it does itself in a root a child does: the program, started again with the
// command of NewChildCommand.
package vfs
