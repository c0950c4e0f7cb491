// Package mountinfo reads the kernel's table of mounts, which proc_pid_mountinfo(5) describes. It
// accesses no mount point: a dead file system answers with errors or never. It has no goroutines
// and no state.
package mountinfo
