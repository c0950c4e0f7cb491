// Package mountinfo reads the kernel's table of mounts, which proc_pid_mountinfo(5) describes. It
// looks at no mount point: what is mounted there may be dead, and then answers with errors or
// never. It has no goroutines and no state.
package mountinfo
