// Package probe looks at what a worker depends on beside its own programs: the clock of its machine,
// the file system of its folder, and how fast its storage is. It refuses to judge: it measures, and
// package farm says what follows. It has no goroutines.
package probe
