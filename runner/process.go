package runner

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// process is a line of the process table.
type process struct {
	pid, ppid, pgid, session int
	state                    byte
	start                    uint64 // with pid it names the process for good
}

// readProcesses reads the process table. It is not a snapshot: it may lack processes that start or
// end meanwhile, so callers read again.
func readProcesses() ([]process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProcess(pid); err == nil { // else it has ended
			all = append(all, p)
		}
	}
	return all, nil
}

// tableShare limits the time for reading a table, for all launchers, to 1/tableShare. A table is
// never older than oldestTable, because process numbers may be reused.
const (
	tableShare  = 20
	oldestTable = time.Second
)

// A table is the process table for callers that accept an old one.
type table struct {
	read func() ([]process, error)

	mu   sync.Mutex
	all  []process // guarded by mu, as all below; not changed
	next time.Time // when it may be read again
}

// tableOf returns the table of this machine.
var tableOf = sync.OnceValue(func() *table { return &table{read: readProcesses} })

// latest returns the table, which is nil if it cannot be read.
func (t *table) latest() []process {
	t.mu.Lock()
	defer t.mu.Unlock()
	if began := time.Now(); !began.Before(t.next) {
		t.all, _ = t.read()
		now := time.Now()
		t.next = now.Add(min(tableShare*now.Sub(began), oldestTable))
	}
	return t.all
}

func readProcess(pid int) (process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	return parseStat(pid, text)
}

// parseStat takes fields 3 (state), 4 (ppid), 5 (pgrp), 6 (session) and 22 (starttime) of
// proc_pid_stat(5). The second field, a name in parentheses, may hold anything.
func parseStat(pid int, text []byte) (process, error) {
	i := bytes.LastIndexByte(text, ')')
	if i < 0 {
		return process{}, fmt.Errorf("stat of process %d: no name", pid)
	}
	f := bytes.Fields(text[i+1:])
	if len(f) < 20 {
		return process{}, fmt.Errorf("stat of process %d: %d fields", pid, len(f))
	}
	p := process{pid: pid, state: f[0][0]}
	var err1, err2, err3, err4 error
	p.ppid, err1 = strconv.Atoi(string(f[1]))
	p.pgid, err2 = strconv.Atoi(string(f[2]))
	p.session, err3 = strconv.Atoi(string(f[3]))
	p.start, err4 = strconv.ParseUint(string(f[19]), 10, 64)
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			return process{}, fmt.Errorf("stat of process %d: %w", pid, err)
		}
	}
	return p, nil
}

// membersOf returns the descendants of root, and the members of the group, without root itself.
func membersOf(all []process, root int, group []int) []process {
	children := make(map[int][]process, len(all))
	byPID := make(map[int]process, len(all))
	for _, p := range all {
		children[p.ppid] = append(children[p.ppid], p)
		byPID[p.pid] = p
	}
	seen := map[int]bool{root: true}
	var members []process
	add := func(p process) {
		if !seen[p.pid] {
			seen[p.pid] = true
			members = append(members, p)
		}
	}
	for _, p := range children[root] {
		add(p)
	}
	for i := 0; i < len(members); i++ {
		for _, p := range children[members[i].pid] {
			add(p)
		}
	}
	for _, pid := range group {
		if p, ok := byPID[pid]; ok {
			add(p)
		}
	}
	return members
}

// signal reaches this very process or none: the number may be another's by now.
// Failures mean that it has ended.
func (p process) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if now, err := readProcess(p.pid); err != nil || now.start != p.start {
		return
	}
	_ = unix.PidfdSendSignal(fd, sig, nil, 0) // ESRCH: it has ended
}

// strikeTree sends SIGKILL to each process and to each process group among them: the
// kernel signals a group in one step that no fork of a member slips through. Commands
// begin with a session of their own, so such a group has no strangers.
func strikeTree(members []process) {
	groups := map[int]bool{unix.Getpgrp(): true} // not our own, should one pretend
	for _, p := range members {
		if !groups[p.pgid] && p.pgid > 1 {
			groups[p.pgid] = true
			_ = unix.Kill(-p.pgid, unix.SIGKILL) // ESRCH: all have ended
		}
	}
	for _, p := range members {
		p.signal(unix.SIGKILL)
	}
}
