// Package cgroup keeps the processes of one slot together, so that all of them
// can be ended at once, whatever they forked, and none can slip out by forking;
// bounds what they use ([Limits]), and counts it ([Meter]).
//
// A [Parent] owns one group below the group this process lives in; each [Slot]
// is a group below that. Open kills and removes what a dead process of the same
// name left there. Groups outside the Parent's are never touched.
//
// # Which hierarchy
//
// Of the hierarchies mounted, the unified one (v2) is taken if its groups have
// cgroup.kill (Linux 5.14), even on a hybrid machine where it has no controllers:
// the kernel kills a whole subtree in one step, no fork can win against it, and a
// child can be born in the group (CLONE_INTO_CGROUP). The v1 freezer is second:
// freeze, signal each process, thaw; and a command enters it by way of the thread
// that forks it, which moves into the group and back.
//
// Measured on 2 cores with both (Linux 6.18, idle): fork, exec and wait of
// /bin/true take 0.74 ms in no group, 0.78 ms in a v2 group, 0.82 ms in a v1 group;
// ending 100 processes takes 3.7 ms by cgroup.kill and 5.8 ms by the freezer.
//
// Below the Parent's group, "launchers" holds the processes that start commands
// and "slot-<name>/run" what they start; see [Slot.Start] for why both are needed.
// "run" is replaced after each kill, "slot-<name>" stays: it has the limits and the
// figures of v2. Every v1 hierarchy has the same groups, also one without a controller that is used,
// so that a command never shares a group with the machine: in a cgroup namespace it sees "run" alone.
// "run" has the limits a second time, because programs look for them in their own group.
//
// # Controllers
//
// Each of cpu, cpuset, memory and pids is used where it is: v1 hierarchies and the v2
// one side by side are common. [Parent.Missing] says what cannot be had, and why; what
// that means is the caller's to decide. Under v2 the group around the Parent's must hand
// the controllers down, which it can do only while no process is in it: if this process
// is alone there, it moves into the group "worker" below the Parent's until Close.
//
// A slot has one set of groups as long as it lives. A fresh one for each action would
// cost 340 µs, and memory groups outlive their removal while a page of the page cache
// is charged to them; the difference of two readings of the counters costs 9 µs (the
// same machine as above). The one figure that has to be reset is the peak of memory.
//
// Control files are written and read here, and not by the packages cgroup1 and cgroup2 of
// containerd/cgroups, whose parser of /proc/self/cgroup is used: their Stat opens and
// parses every file of every controller, 210 µs each time here; they find hierarchies at
// /sys/fs/cgroup/<name> only, cannot birth a process in a group, and bring D-Bus, eBPF
// and 6 MB along.
//
// # What it refuses
//
// No moving of processes that are not the slot's or this one. It never falls back
// silently: with neither hierarchy usable Open fails with [ErrUnavailable] and says
// what is missing.
//
// # Goroutines and locks
//
// The package starts no goroutine and has no mutex. A Parent holds a flock on its
// directory, which is how a second process of the same name is told apart from a
// dead one. A Slot may be used from several goroutines and processes, except that
// Close comes last.
package cgroup
