// Package vfs compares input roots with plain folders. Its rows go to vfs.json.
//
// It serves FUSE in its own process. So a launcher starts all programs after the setup, and the
// process never accesses its own mounts. A child process does its work in a root: this program with
// the command of NewChildCommand.
package vfs
