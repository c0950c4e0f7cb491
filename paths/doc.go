// Package paths compares paths of files. It looks only at their text, not at the disk: its callers
// resolve symlinks where they matter.
package paths
