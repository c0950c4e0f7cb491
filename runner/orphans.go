package runner

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A parent starts the launchers of this process, on a thread that lives as long: Pdeathsig reports
// the thread's death, and other threads may end earlier. It adopts what launchers without a sandbox
// leave behind when they die: as a child subreaper this process becomes the parent.
type parent struct {
	calls     chan func()
	launchers map[int]bool // belongs to the thread, as all below
	// strangers are the children from before the first launcher: the guard of mounts, or daemons
	// of a script that became this process. Numbers of processes, with their starts; nil: this
	// process does not adopt yet.
	strangers map[int]uint64
}

// parentOf is the parent of this process.
var parentOf = sync.OnceValue(func() *parent {
	p := &parent{calls: make(chan func()), launchers: map[int]bool{}}
	go p.serve()
	return p
})

func (p *parent) serve() {
	runtime.LockOSThread() // for good
	if err := setTimerSlack(launcherSlack); err != nil {
		panic(err)
	}
	for call := range p.calls {
		call()
	}
}

// do calls f on the thread, and returns when that has ended.
func (p *parent) do(f func()) {
	ended := make(chan struct{})
	p.calls <- func() {
		defer close(ended)
		f()
	}
	<-ended
}

// start is os.StartProcess for a launcher. adopts: it has no sandbox.
func (p *parent) start(name string, argv []string, attr *os.ProcAttr, adopts bool) (proc *os.Process, err error) {
	p.do(func() {
		if adopts {
			if err = p.becomeSubreaper(); err != nil {
				return
			}
		}
		if proc, err = os.StartProcess(name, argv, attr); err == nil {
			p.launchers[proc.Pid] = true
		}
	})
	return proc, err
}

// becomeSubreaper makes this process the parent of what its launchers leave.
func (p *parent) becomeSubreaper() error {
	if p.strangers != nil {
		return nil
	}
	all, err := readProcesses()
	if err != nil {
		return fmt.Errorf("look for children: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become child subreaper: %w", err)
	}
	p.strangers = map[int]uint64{}
	for _, child := range all {
		if child.ppid == unix.Getpid() {
			p.strangers[child.pid] = child.start
		}
	}
	return nil
}

// wait waits for the end of a launcher.
func (p *parent) wait(proc *os.Process) error {
	_, err := proc.Wait()
	p.do(func() { delete(p.launchers, proc.Pid) })
	return err
}

// killOrphans kills and reaps what launchers left that have died, until nothing of it is there or
// ctx ends.
func (p *parent) killOrphans(ctx context.Context) error {
	for gap := firstStrikeGap; ; gap = min(2*gap, longestGap) {
		var left []process
		var err error
		p.do(func() { left, err = p.strikeOrphans() })
		if err != nil || len(left) == 0 {
			return err
		}
		select {
		case <-time.After(gap):
		case <-ctx.Done():
			var pids []int
			for _, orphan := range left {
				pids = append(pids, orphan.pid)
			}
			return fmt.Errorf("%w: %s, which a launcher left", ErrUnkillable, listPids(pids))
		}
	}
}

// strikeOrphans kills the orphans and all below them, once, and returns those that were there.
func (p *parent) strikeOrphans() ([]process, error) {
	all, err := readProcesses()
	if err != nil {
		return nil, fmt.Errorf("look for orphans: %w", err)
	}
	session, err := unix.Getsid(0)
	if err != nil {
		return nil, fmt.Errorf("look for orphans: %w", err)
	}
	var members []process
	orphans := p.orphansOf(all, unix.Getpid(), session)
	for _, orphan := range orphans {
		members = append(append(members, orphan), membersOf(all, orphan.pid, nil)...)
	}
	strikeTree(members)
	for _, orphan := range orphans {
		var status syscall.WaitStatus
		_, _ = syscall.Wait4(orphan.pid, &status, unix.WNOHANG|unix.WALL, nil) // else the next look sees it again
	}
	return orphans, nil
}

// orphansOf picks the children of a process, self, that it did not start: launchers and what they
// start have sessions of their own, and no process can enter the session of another one. Children
// that self starts in other sessions later than launchers are not told apart.
func (p *parent) orphansOf(all []process, self, session int) (orphans []process) {
	for _, c := range all {
		start, known := p.strangers[c.pid]
		if c.ppid == self && c.session != session && !p.launchers[c.pid] && !(known && start == c.start) {
			orphans = append(orphans, c)
		}
	}
	return orphans
}
