package launchertest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A Process identifies a process, even after its end.
type Process struct {
	PID   int
	start string // with PID it names the process for good
}

// ChildOf returns a child of a process, which must have one.
func ChildOf(t testing.TB, pid int) Process {
	t.Helper()
	for _, child := range processes() {
		if f := stat(child); f != nil && f[1] == strconv.Itoa(pid) {
			return Process{child, f[19]}
		}
	}
	t.Fatalf("process %d has no child", pid)
	return Process{}
}

// Alive reports whether it still exists, and is no zombie.
func (p Process) Alive() bool {
	f := stat(p.PID)
	return f != nil && f[19] == p.start && f[0] != "Z"
}

// processes lists the numbers of all that there are.
func processes() (pids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*") // the pattern is right
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(name)); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// stat returns the fields of proc_pid_stat(5) from the third on, the state, nil for a process that
// has ended.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return nil
	}
	return fields
}
