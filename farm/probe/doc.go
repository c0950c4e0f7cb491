// Package probe measures what a worker depends on besides its own programs: the clock of its
// machine, the file system of its folder, and the speed of its storage. It only measures; package
// farm draws the conclusions. It has no goroutines.
package probe
