// Package vfs measures input roots against plain folders, as rows of vfs.json.
//
// It serves FUSE in its own process, so a launcher starts all programs after the setup, and the
// process never accesses its own mounts. Its own work in a root is done by a child: this program
// with the command of NewChildCommand.
package vfs
