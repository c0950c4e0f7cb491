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
	"time"

	"golang.org/x/sys/unix"
)

const (
	freezePatience = 100 * time.Millisecond // then signal processes that are not frozen, too
	firstWait      = time.Millisecond
	longestWait    = 50 * time.Millisecond

	// exitPatience is how long the removal of a group without processes may fail, lastPatience of
	// one that lists processes and should have none.
	exitPatience = 5 * time.Second
	lastPatience = 200 * time.Millisecond
)

// writeFile is one write without O_CREATE: a control file that is missing must
// not be reported as a failure to create it.
func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// groupsBelow lists dir and all groups below it, parents first.
func groupsBelow(dir string) ([]string, error) {
	all := []string{dir}
	for i := 0; i < len(all); i++ {
		subs, err := subgroups(all[i])
		if err != nil && !gone(err) {
			return nil, err
		}
		all = append(all, subs...)
	}
	return all, nil
}

func subgroups(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var subs []string
	for _, e := range entries {
		if e.IsDir() {
			subs = append(subs, filepath.Join(dir, e.Name()))
		}
	}
	return subs, nil
}

// gone reports that a group was removed during the operation.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

func pidsBelow(dir string) ([]int, error) {
	groups, err := groupsBelow(dir)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, g := range groups {
		members, err := pidsIn(g)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		pids = append(pids, members...)
	}
	return pids, nil
}

// pidsIn lists the processes in group itself.
func pidsIn(group string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for line := range bytes.FieldsSeq(text) {
		pid, err := strconv.Atoi(string(line))
		if err != nil {
			return nil, fmt.Errorf("%s/cgroup.procs: %w", group, err)
		}
		if pid != 0 { // 0 is a process outside of our pid namespace
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// killGroup strikes until nothing is left or giveUp returns an error. A group that
// does not exist is empty.
func killGroup(version int, dir string, giveUp func() error) error {
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		pids, err := pidsBelow(dir)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		if slices.Contains(pids, os.Getpid()) {
			return fmt.Errorf("%s: %w", dir, errSelf)
		}
		if err := giveUp(); err != nil {
			return fmt.Errorf("%s: processes %v: %w", dir, pids, err)
		}
		if err := strike(version, dir); err != nil {
			return err
		}
		awaitChange(version, dir, wait)
	}
}

// errSelf keeps a process from killing or freezing itself.
var errSelf = errors.New("this process itself is in the group")

func strike(version int, dir string) error {
	if version == 2 {
		err := writeFile(filepath.Join(dir, "cgroup.kill"), "1")
		if gone(err) {
			return nil
		}
		return err
	}
	return strikeFrozen(dir)
}

// strikeFrozen stops the group, so that nothing forks, signals each process and
// lets them run into their signal. The parent's state covers the groups below,
// and a command may have set one of those itself, hence the loop over all.
func strikeFrozen(dir string) error {
	pids, err := pidsBelow(dir)
	if err != nil {
		return err
	}
	if slices.Contains(pids, os.Getpid()) {
		return fmt.Errorf("%s: %w", dir, errSelf)
	}
	groups, err := groupsBelow(dir)
	if err != nil {
		return err
	}
	state := filepath.Join(dir, "freezer.state")
	if err := writeFile(state, "FROZEN"); err != nil && !gone(err) {
		return err
	}
	awaitFrozen(state)
	err = signalAll(dir)
	for _, g := range groups {
		if thaw := writeFile(filepath.Join(g, "freezer.state"), "THAWED"); thaw != nil && !gone(thaw) {
			err = errors.Join(err, thaw)
		}
	}
	return err
}

func signalAll(dir string) error {
	pids, err := pidsBelow(dir)
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if e := unix.Kill(pid, unix.SIGKILL); e != nil && e != unix.ESRCH {
			err = errors.Join(err, fmt.Errorf("kill %d: %w", pid, e))
		}
	}
	return err
}

// awaitFrozen returns when the freezer says FROZEN, or waiting is pointless: a process in
// uninterruptible sleep keeps it FREEZING.
func awaitFrozen(state string) {
	for start := time.Now(); time.Since(start) < freezePatience; time.Sleep(firstWait) {
		text, err := os.ReadFile(state)
		if err != nil || string(bytes.TrimSpace(text)) == "FROZEN" {
			return
		}
	}
}

// awaitChange waits up to d for the group to become empty: v2 announces it, v1 must be polled.
func awaitChange(version int, dir string, d time.Duration) {
	if version != 2 {
		time.Sleep(d)
		return
	}
	f, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		return
	}
	defer f.Close()
	// The read arms the notification.
	text := make([]byte, 256)
	n, err := f.Read(text)
	if err != nil || bytes.Contains(text[:n], []byte("populated 0")) {
		return
	}
	fds := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLPRI}}
	_, _ = unix.Poll(fds, int(d.Milliseconds())) // an error only means to look again sooner
}

// removeTree removes dir and the groups below it, deepest first. Processes that one lists have
// that long to go.
func removeTree(dir string, patience time.Duration) error {
	groups, err := groupsBelow(dir)
	if err != nil {
		return err
	}
	for _, g := range slices.Backward(groups) {
		if err := remove(g, patience); err != nil {
			return fmt.Errorf("remove %s: %w", g, err)
		}
	}
	return nil
}

// remove removes a group without groups below it. An exiting thread stays in its group until it has
// run for the last time, which can be after its end was reported (seen on Linux 6.18): v2 then
// lists no process, v1 still that of the thread, even if all its other threads were moved. So a
// busy group is retried.
func remove(group string, patience time.Duration) error {
	start := time.Now()
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		err := unix.Rmdir(group)
		if err == nil || gone(err) {
			return nil
		}
		if !errors.Is(err, unix.EBUSY) {
			return err
		}
		pids, err := pidsIn(group)
		if err != nil && !gone(err) {
			return err
		}
		limit := patience
		if len(pids) == 0 {
			limit = max(limit, exitPatience)
		}
		if time.Since(start) > limit {
			return fmt.Errorf("%w: processes %v", ErrBusy, pids)
		}
		time.Sleep(wait)
	}
}
