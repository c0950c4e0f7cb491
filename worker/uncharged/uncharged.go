package uncharged

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Netlink returns how many bytes wait in the netlink sockets of a process's network namespace. An
// empty process is this one.
func Netlink(process string) (bytes int64, err error) {
	if process == "" {
		process = "self"
	}
	f, err := os.Open("/proc/" + process + "/net/netlink")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return sumNetlink(f)
}

// sumNetlink adds up a table that has a line for each socket: address, protocol, port, groups,
// bytes received, bytes sent.
func sumNetlink(r io.Reader) (bytes int64, err error) {
	lines := bufio.NewScanner(r)
	lines.Scan() // the head
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 6 {
			return 0, fmt.Errorf("a netlink socket has %d fields: %q", len(fields), lines.Text())
		}
		for _, field := range fields[4:6] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("a netlink socket: %w", err)
			}
			bytes += n
		}
	}
	return bytes, lines.Err()
}

// A Memory is the memory of a machine, in bytes.
type Memory struct {
	Total     int64
	Available int64 // available to programs without swapping
	Kernel    int64 // unreclaimable kernel objects, no matter which cgroup is charged
	Mapped    int64 // large objects of the kernel in pages that it has mapped; older than Linux 5.3: 0
}

// Machine returns the memory of this machine.
func Machine() (Memory, error) {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return Memory{}, err
	}
	defer f.Close()
	return parseMemory(f)
}

// parseMemory reads a table like that of proc_meminfo(5).
func parseMemory(r io.Reader) (m Memory, err error) {
	var counters int64 // of which each processor has one, as each mount does; Linux has told since 4.20
	fields := map[string]*int64{
		"MemTotal": &m.Total, "MemAvailable": &m.Available, "SUnreclaim": &m.Kernel, "Percpu": &counters, "VmallocUsed": &m.Mapped,
	}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		to := fields[name]
		if to == nil {
			continue
		}
		delete(fields, name)
		number, unit, _ := strings.Cut(strings.TrimSpace(value), " ")
		if *to, err = strconv.ParseInt(number, 10, 64); err != nil || unit != "kB" {
			return m, fmt.Errorf("memory of the machine: %q", lines.Text())
		}
		*to <<= 10
	}
	delete(fields, "Percpu")
	delete(fields, "VmallocUsed")
	m.Kernel += counters
	if len(fields) > 0 {
		return m, errors.Join(fmt.Errorf("the kernel does not tell %v", slices.Sorted(maps.Keys(fields))), lines.Err())
	}
	return m, lines.Err()
}

// NetlinkOf is Netlink of the first process that shows it: the first thread of one may have ended
// before the others, and then only these know its namespace.
func NetlinkOf(pids []int) (bytes int64, err error) {
	for _, pid := range pids {
		process := strconv.Itoa(pid)
		if bytes, err = Netlink(process); err == nil {
			return bytes, nil
		}
		threads, readErr := os.ReadDir("/proc/" + process + "/task")
		if readErr != nil {
			continue
		}
		for _, thread := range threads {
			if bytes, err = Netlink(process + "/task/" + thread.Name()); err == nil {
				return bytes, nil
			}
		}
	}
	return 0, errors.Join(errors.New("no process shows the content of its network namespace"), err)
}
