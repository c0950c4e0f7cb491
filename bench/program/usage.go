package program

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A Usage is the resource usage of a process and its descendants so far.
type Usage struct {
	Self     time.Duration // CPU time of the process itself
	Children time.Duration // CPU time of its living children: the launchers of a worker
	Ended    time.Duration // CPU time of all descendants that have ended and were waited for: commands
	Switches int64         // context switches of the process's threads, at waits
	Below    int64         // context switches of its children's threads, at waits
}

// Less returns the usage since before.
func (u Usage) Less(before Usage) Usage {
	return Usage{
		u.Self - before.Self, u.Children - before.Children, u.Ended - before.Ended,
		u.Switches - before.Switches, u.Below - before.Below,
	}
}

// UsageOf returns the usage so far. The kernel counts ended processes in hundredths of a second,
// living ones in nanoseconds.
func UsageOf(pid int) (u Usage, err error) {
	table, err := readTable()
	if err != nil {
		return u, err
	}
	if u.Self, err = clockOf(pid); err != nil {
		return u, err
	}
	u.Switches = Switches(pid)
	below := []int{pid}
	for len(below) > 0 {
		parent := below[0]
		below = below[1:]
		u.Ended += table[parent].ended
		for child, p := range table {
			if p.parent != parent {
				continue
			}
			below = append(below, child)
			if used, err := clockOf(child); err == nil { // otherwise it has ended
				u.Children += used
				u.Below += Switches(child)
			}
		}
	}
	return u, nil
}

// clockOf returns the CPU time of all threads of a process, including those that have ended.
func clockOf(pid int) (time.Duration, error) {
	const ofProcess = 2 // CPUCLOCK_SCHED: the clock of the scheduler
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|ofProcess), &ts); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// Switches returns how often the living threads of a process have waited; 0 if it has ended.
func Switches(pid int) (n int64) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/[0-9]*/status", pid)) // the pattern is valid
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		_, rest, _ := bytes.Cut(text, []byte("\nvoluntary_ctxt_switches:"))
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		waited, _ := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
		n += waited
	}
	return n
}

type tableEntry struct {
	parent int
	ended  time.Duration // of ended children, and of their ended children
}

// readTable reads the process table; keys are process IDs.
func readTable() (map[int]tableEntry, error) {
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	table := make(map[int]tableEntry, len(files))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return nil, err
		}
		// Fields from the third on, proc_pid_stat(5): the second one, a name, may contain any
		// character.
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 15 {
			continue
		}
		var e tableEntry
		if e.parent, err = strconv.Atoi(fields[1]); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, field := range fields[13:15] { // user and system time
			ticks, err := strconv.Atoi(field)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			e.ended += time.Duration(ticks) * 10 * time.Millisecond
		}
		table[pid] = e
	}
	return table, nil
}
