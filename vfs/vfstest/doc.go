// Package vfstest has a source of input roots for the tests of vfs and of its layers: trees in
// memory, blobs in files, and calls that fail or wait when a test wants them to. It is for tests
// alone.
package vfstest
