// Package recorder measures real commands on machines of several sizes, for package recording.
//
// A machine of n CPUs is a slot of package cgroup with n times a memory limit. The recorder makes
// machines that are larger than its own by slowing them down: every thread of a command is in a
// group of its own that has a small share of a CPU, the speed, and all of them together have n times
// that. A machine of 8 CPUs with a speed of an eighth needs a single CPU. Durations and waits are
// multiplied by the speed; CPU times and memory are as measured. A command that sleeps must sleep
// longer, by the factor in its environment variable SLOW; CPUS has the number of CPUs.
//
// Reading from disks is not slowed down; commands run once before, so that their files are in the
// page cache. A new thread shares its parent's CPU for up to 10 ms until it gets its own.
//
// Groups for single threads need the cpu controller in a cgroup v1 hierarchy, and root.
//
// # Goroutines
//
// Record has one goroutine for each command that runs, and each of these one that gives
// threads their groups. Record waits for all of them.
package recorder
