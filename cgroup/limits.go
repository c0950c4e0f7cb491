package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// Limits apply to all commands of a slot together. A zero field sets no limit for the slot.
type Limits struct {
	// CPUs are the numbers of the CPUs that commands see and run on.
	CPUs []int
	// Quota is bandwidth, in thousandths of a CPU: 1500 is 150 ms of every 100 ms.
	Quota int
	// Memory is in bytes: memory of processes, their page cache, tmpfs files and kernel memory for
	// them. Swap counts as memory (v1), or is not used at all (v2).
	Memory int64
	// Sockets is in bytes: data that connections hold (v1). 0 is a quarter of Memory.
	Sockets int64
	// Pids is the number of processes and threads.
	Pids int
}

// quotaPeriod is in microseconds; it is the kernel's own default.
const quotaPeriod = 100_000

// A setting is a value for a control file.
type setting struct {
	file, value string
	// optional settings do without the file: a kernel without accounting of swap.
	optional bool
}

// settings returns the settings of one controller, in the order of growing memory. Groups are
// limited only once, when they are new.
func (l *Limits) settings(controller string, version int) []setting {
	var list []setting
	add := func(is bool, file, value string, optional bool) {
		if is {
			list = append(list, setting{file, value, optional})
		}
	}
	memory := strconv.FormatInt(l.Memory, 10)
	quota := strconv.Itoa(l.Quota * quotaPeriod / 1000)
	switch {
	case controller == "cpuset":
		add(len(l.CPUs) > 0, "cpuset.cpus", cpuList(l.CPUs), false)
	case controller == "pids" && version == 1:
		// The thread that forks is in the group, too.
		add(l.Pids > 0, "pids.max", strconv.Itoa(l.Pids+1), false)
	case controller == "pids":
		add(l.Pids > 0, "pids.max", strconv.Itoa(l.Pids), false)
	case controller == "cpu" && version == 1:
		add(l.Quota > 0, "cpu.cfs_period_us", strconv.Itoa(quotaPeriod), false)
		add(l.Quota > 0, "cpu.cfs_quota_us", quota, false)
	case controller == "cpu":
		add(l.Quota > 0, "cpu.max", quota+" "+strconv.Itoa(quotaPeriod), false)
	case controller == "memory" && version == 1:
		add(l.Memory > 0, "memory.limit_in_bytes", memory, false)
		add(l.Memory > 0, "memory.memsw.limit_in_bytes", memory, true)
		// Without it socket memory is not counted; it is separate from the rest.
		add(l.Memory > 0, "memory.kmem.tcp.limit_in_bytes", strconv.FormatInt(cmp.Or(l.Sockets, l.Memory/4), 10), true)
	case controller == "memory":
		add(l.Memory > 0, "memory.max", memory, false)
		add(l.Memory > 0, "memory.swap.max", "0", true)
		// All processes of an action die, not only the largest one: the others would continue in an
		// untested state, as they do under v1.
		add(true, "memory.oom.group", "1", true)
	}
	return list
}

// Limit sets the limits of the slot. Call it at most once, before the first Start. Limits of
// missing controllers (Parent.Missing) do not apply.
func (s *Slot) Limit(l Limits) error {
	for _, c := range controllers {
		around, ok := s.controls[c]
		if !ok {
			continue
		}
		// No group of a v1 cpuset may have less than one in it: that one is first.
		for _, dir := range []string{filepath.Join(around.dir, runName), around.dir} {
			if err := l.write(c, control{around.version, dir}); err != nil {
				return fmt.Errorf("limit slot: %w", err)
			}
		}
	}
	s.handle.Limits = l
	return nil
}

// write sets the limits of a controller on one group.
func (l *Limits) write(controller string, group control) error {
	for _, set := range l.settings(controller, group.version) {
		err := writeFile(filepath.Join(group.dir, set.file), set.value)
		if set.optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("write %q: %w", set.value, err)
		}
	}
	return nil
}

// Limits returns the arguments of Limit.
func (s *Slot) Limits() Limits { return s.handle.Limits }

// cpuList writes CPU numbers as the kernel reads them.
func cpuList(cpus []int) string {
	parts := make([]string, len(cpus))
	for i, cpu := range cpus {
		parts[i] = strconv.Itoa(cpu)
	}
	return strings.Join(parts, ",")
}
