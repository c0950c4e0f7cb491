package runner

import (
	"slices"
	"testing"
)

// TestOrphansOf: launchers, children of the same session and those from before the first launcher
// are no orphans. A process with the number of such a child is one.
func TestOrphansOf(t *testing.T) {
	p := &parent{launchers: map[int]bool{20: true}, strangers: map[int]uint64{30: 7, 31: 7}}
	all := []process{
		{pid: 10, ppid: 1, session: 1},
		{pid: 20, ppid: 10, session: 20},
		{pid: 21, ppid: 10, session: 10},
		{pid: 22, ppid: 20, session: 22},
		{pid: 23, ppid: 10, session: 22},
		{pid: 30, ppid: 10, session: 30, start: 7},
		{pid: 31, ppid: 10, session: 31, start: 8},
	}
	var pids []int
	for _, orphan := range p.orphansOf(all, 10, 10) {
		pids = append(pids, orphan.pid)
	}
	if want := []int{23, 31}; !slices.Equal(pids, want) {
		t.Errorf("orphans %v, want %v", pids, want)
	}
}
