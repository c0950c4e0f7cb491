package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Capacity is the part of the machine that this process may use, alone or with others.
type Capacity struct {
	// CPUs are the allowed CPUs, siblings of a core side by side.
	CPUs []int
	// Quota is the bandwidth of all of them, in thousandths of a CPU; less than 1000 for each if a
	// group around this process has a quota.
	Quota int
	// Memory is in bytes: the machine's, or the limit of a surrounding group.
	Memory int64
	// Pids limits the number of processes and threads.
	Pids int
	// Sockets is the total, in bytes, above which the kernel gives the machine's connections less
	// memory; 0: unknown.
	Sockets int64
}

// Measure determines the Capacity of the process, before it makes groups.
func Measure() (Capacity, error) {
	c := Capacity{}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return c, fmt.Errorf("get CPU affinity: %w", err)
	}
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			c.CPUs = append(c.CPUs, cpu)
		}
	}
	sortByCore(c.CPUs)
	c.Quota = 1000 * len(c.CPUs)
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return c, fmt.Errorf("get size of memory: %w", err)
	}
	c.Memory = int64(info.Totalram) * int64(info.Unit)
	most, err := os.ReadFile("/proc/sys/kernel/pid_max")
	if err != nil {
		return c, fmt.Errorf("get number of processes: %w", err)
	}
	c.Pids = int(number(most))
	if pages, err := words("/proc/sys/net/ipv4/tcp_mem"); err == nil && len(pages) == 3 { // a container has none
		if n := number([]byte(pages[1])); n <= c.Memory/int64(os.Getpagesize()) { // more is no limit
			c.Sockets = n * int64(os.Getpagesize())
		}
	}
	around, err := lookAround()
	if err != nil {
		return c, fmt.Errorf("find cgroup hierarchies: %w", err)
	}
	return c, c.boundBy(around)
}

// boundBy takes the limits of the groups that this process is in, and of those around
// them as far as they can be seen.
func (c *Capacity) boundBy(around surroundings) error {
	unified, _ := around.inUnified()
	dirs := map[string]string{}
	for _, controller := range []string{"cpu", "memory", "pids"} {
		dirs[controller] = unified
		if dir, ok := around.controller(controller); ok {
			dirs[controller] = dir
		}
	}
	return errors.Join(
		eachAround(dirs["memory"], "memory.max", func(_, text string) { lower(&c.Memory, text, 1, 1) }),
		eachAround(dirs["memory"], "memory.limit_in_bytes", func(_, text string) { lower(&c.Memory, text, 1, 1) }),
		eachAround(dirs["pids"], "pids.max", func(_, text string) { lower(&c.Pids, text, 1, 1) }),
		eachAround(dirs["cpu"], "cpu.max", func(_, text string) {
			quota, period, _ := strings.Cut(text, " ")
			lower(&c.Quota, quota, 1000, number([]byte(period)))
		}),
		eachAround(dirs["cpu"], "cpu.cfs_quota_us", func(dir, text string) {
			period, _ := os.ReadFile(filepath.Join(dir, "cpu.cfs_period_us")) // without it there is no limit
			lower(&c.Quota, text, 1000, number(period))
		}),
	)
}

// lower sets bound to a limit times factor by divisor if that is less. "max" and
// negative numbers are no limit.
func lower[T int | int64](bound *T, limit string, factor, divisor int64) {
	n, err := strconv.ParseInt(limit, 10, 64)
	if err != nil || n <= 0 || divisor <= 0 || n > (1<<62)/factor {
		return
	}
	*bound = min(*bound, T(n*factor/divisor))
}

// eachAround reads a file of a group and of those around it, if they have it.
func eachAround(dir, file string, use func(dir, text string)) error {
	for ; dir != "" && dir != "/"; dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err != nil {
				return nil // out of the hierarchy
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("read limits: %w", err)
		}
		use(dir, string(bytes.TrimSpace(text)))
	}
	return nil
}

// sortByCore puts the CPUs of a core, and the cores of a package, side by side, so that few cores
// and packages are shared between slots.
func sortByCore(cpus []int) {
	topology := map[int][2]int64{}
	for _, cpu := range cpus {
		dir := fmt.Sprintf("/sys/devices/system/cpu/cpu%d/topology/", cpu)
		// Without these files CPUs keep their order, which is right for one package.
		pkg, _ := os.ReadFile(dir + "physical_package_id")
		core, _ := os.ReadFile(dir + "core_id")
		topology[cpu] = [2]int64{number(pkg), number(core)}
	}
	slices.SortStableFunc(cpus, func(a, b int) int {
		x, y := topology[a], topology[b]
		return slices.Compare(x[:], y[:])
	})
}

// A Share defines the division of a Capacity.
type Share struct {
	Slots int
	// Quota is for each slot, in thousandths of a CPU. 0: the whole CPUs that an equal
	// share has, or the fraction if it has none.
	Quota int
	// Memory is for each slot, in bytes. 0: an equal share of 90 % or more; a tenth, at most 1 GiB,
	// remains for this process and the system.
	Memory int64
}

const (
	mostReserve = 1 << 30
	mostPids    = 4096 // for a slot; more is a fork bomb
	fewestPids  = 64
	// fewestSockets are the bytes of socket buffers that each slot may have, however many slots
	// there are.
	fewestSockets = 8 << 20
	// touch is the part of a CPU, in thousandths, above which the CPU is in the slot's set: smaller
	// parts come from rounding.
	touch = 20
)

// Divide returns the Limits of each slot. It deals CPUs out like a tape that is cut into pieces. A
// slot of whole CPUs has them exclusively and needs no Quota, which would only throttle in addition
// to the set. A slot of 1.5 CPUs sees 2, shares one of them, and has a Quota. At the end of the
// CPUs the tape starts again, and no CPU is exclusive any more.
func (c Capacity) Divide(s Share) ([]Limits, error) {
	if s.Slots < 1 {
		return nil, fmt.Errorf("%d slots", s.Slots)
	}
	all := 1000 * len(c.CPUs)
	if s.Quota == 0 {
		s.Quota = min(c.Quota, all) / s.Slots
		if s.Quota >= 1000 {
			s.Quota -= s.Quota % 1000
		}
	}
	if s.Memory == 0 {
		s.Memory = (c.Memory - min(c.Memory/10, mostReserve)) / int64(s.Slots)
	}
	switch {
	case s.Quota < 10: // the kernel takes no less than 1 ms
		return nil, fmt.Errorf("%d slots are too many for %d CPUs", s.Slots, len(c.CPUs))
	case s.Quota > all:
		return nil, fmt.Errorf("a slot of %.4g CPUs is larger than the machine, which has %d for this process",
			float64(s.Quota)/1000, len(c.CPUs))
	case s.Memory > c.Memory:
		return nil, fmt.Errorf("a slot of %d bytes of memory is larger than the machine, which has %d for this process",
			s.Memory, c.Memory)
	}
	sockets := max(fewestSockets, c.Sockets/2/int64(s.Slots)) // the other half is for others than commands
	if c.Sockets == 0 || sockets >= s.Memory/4 {
		sockets = 0
	}
	exclusive := s.Quota%1000 == 0 && s.Quota*s.Slots <= all
	limits := make([]Limits, s.Slots)
	for i := range limits {
		l := Limits{Memory: s.Memory, Sockets: sockets, Quota: s.Quota, Pids: max(fewestPids, min(mostPids, c.Pids/2/s.Slots))}
		if exclusive {
			l.Quota = 0
		}
		from := i*s.Quota + touch
		to := max(from, (i+1)*s.Quota-touch)
		for n := from / 1000; n <= to/1000 && len(l.CPUs) < len(c.CPUs); n++ {
			l.CPUs = append(l.CPUs, c.CPUs[n%len(c.CPUs)])
		}
		limits[i] = l
	}
	return limits, nil
}
