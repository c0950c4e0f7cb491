package sandbox

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// inheritedStatus are the lines of /proc/PID/status with inherited attributes.
var inheritedStatus = []string{
	"Umask", "Uid", "Gid", "Groups", "SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Seccomp_filters", "THP_enabled",
}

// Inherited lists the attributes that commands inherit from this process and can notice: limits of
// setrlimit(2), identity, rights, ignored signals, personality and the number of CPUs. It forks, so
// it must come before the first mount.
func Inherited() (all []string, err error) {
	err = withStopped(&syscall.SysProcAttr{}, func(pid int) error {
		limits, err := limitsOf(pid)
		if err != nil {
			return err
		}
		attributes, err := attributesOf(pid)
		all = append(limits, attributes...)
		return err
	})
	return all, err
}

// limitsOf lists the limits of a process.
func limitsOf(pid int) (limits []string, err error) {
	for resource := range unix.RLIMIT_RTTIME + 1 { // the last one
		var limit unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &limit); err != nil {
			return nil, fmt.Errorf("read limit %d: %w", resource, err)
		}
		limits = append(limits, fmt.Sprintf("limit %d: %d %d", resource, limit.Cur, limit.Max))
	}
	return limits, nil
}

// attributesOf lists further inherited attributes of a process.
func attributesOf(pid int) (all []string, err error) {
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &cpus); err != nil {
		return nil, fmt.Errorf("read CPU affinity: %w", err)
	}
	all = append(all, fmt.Sprintf("CPUs: %d", cpus.Count()))
	personality, err := os.ReadFile(fmt.Sprintf("/proc/%d/personality", pid))
	if err != nil {
		return nil, err
	}
	all = append(all, "personality: "+strings.TrimSpace(string(personality)))
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(status)) {
		if name, value, _ := strings.Cut(line, ":"); slices.Contains(inheritedStatus, name) {
			all = append(all, name+": "+strings.Join(strings.Fields(value), " "))
		}
	}
	return all, nil
}
