// Package cgroup keeps the processes of one slot together: it kills all of them at once, including
// their children, and no process can escape by a fork. It limits their resources ([Limits]) and
// measures them ([Meter]).
//
// A [Parent] owns one group below the group of this process; each [Slot] is a group below that.
// Open kills and removes the leftovers of a dead process with the same name. Groups outside the
// Parent's are never changed.
//
// # Choice of the hierarchy
//
// The package prefers the unified hierarchy (v2) if its groups have cgroup.kill (Linux 5.14), even
// on a hybrid machine where it has no controllers: the kernel kills a whole subtree in one step, no
// fork can escape, and a child can be born in the group (CLONE_INTO_CGROUP). The second choice is
// the v1 freezer: freeze, signal each process, thaw. There, the thread that forks the command moves
// into the group and back.
//
// Measured on 2 cores with both (Linux 6.18, idle): fork, exec and wait of
// /bin/true take 0.74 ms in no group, 0.78 ms in a v2 group, 0.82 ms in a v1 group;
// ending 100 processes takes 3.7 ms by cgroup.kill and 5.8 ms by the freezer.
//
// Below the Parent's group, "launchers" holds the processes that start commands and
// "slot-<name>/run" the commands; see [Slot.Start] for the reason. "run" is replaced after each
// kill, "slot-<name>" stays: it has the limits and the counters of v2. Every v1 hierarchy has the
// same groups, even if none of its controllers is used, so that a command never shares a group with
// the machine: in a cgroup namespace it sees only "run". "run" repeats the limits, because programs
// look for them in their own group.
//
// # Controllers
//
// Each of cpu, cpuset, memory and pids is used in the hierarchy that has it: v1 hierarchies and v2
// side by side are common. [Parent.Missing] lists unavailable ones with reasons; the caller decides
// about the consequences. Under v2 the group around the Parent's must enable the controllers for
// its children, which is possible only without processes in it: if this process is alone there, it
// moves into the group "worker" below the Parent's until Close.
//
// A slot keeps one set of groups. A new set for each action would
// cost 340 µs, and memory groups survive their removal while a page of the page cache
// is charged to them; the difference of two readings of the counters costs 9 µs (the
// same machine as above). Only the peak of memory must be reset.
//
// This package writes and reads control files itself. From containerd/cgroups it uses only the
// parser of /proc/self/cgroup, and not the packages cgroup1 and cgroup2: their Stat opens and
// parses every file of every controller, 210 µs each time here; they find hierarchies at
// /sys/fs/cgroup/<name> only, cannot start a process in a group, and add D-Bus, eBPF and 6 MB.
//
// # What it does not do
//
// It moves only this process and processes of its slots. It never falls back
// silently: with no usable hierarchy Open fails with [ErrUnavailable] and lists the
// missing parts.
//
// # Goroutines and locks
//
// The package starts no goroutine and has no mutex. A Parent holds a flock on its
// directory, which distinguishes a living process of the same name from a
// dead one. A Slot may be used from several goroutines and processes, except that
// Close comes last.
package cgroup
