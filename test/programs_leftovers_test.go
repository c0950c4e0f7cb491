package test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A trace is what a running worker has on its machine besides its files.
type trace struct {
	launchers []int
	groups    []string // names of its cgroups, without the path
}

// traceOf looks at a program that has a worker in it.
func traceOf(t *testing.T, worker *process) trace {
	t.Helper()
	var found trace
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range processes {
		pid, err := strconv.Atoi(path.Base(dir))
		if err != nil || !isLauncher(pid) || parentOf(pid) != worker.cmd.Process.Pid {
			continue
		}
		found.launchers = append(found.launchers, pid)
		memberships, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(strings.ReplaceAll(string(memberships), "\n", "/"), "/") {
			if strings.HasPrefix(part, "forerunner-") && !slices.Contains(found.groups, part) {
				found.groups = append(found.groups, part)
			}
		}
	}
	return found
}

// isLauncher reports whether a process is there and a launcher.
func isLauncher(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.HasPrefix(line, []byte("forerunner-launcher\x00"))
}

// parentOf returns the pid of the parent of a process, 0 if it has ended.
func parentOf(pid int) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "PPid:"); ok {
			parent, _ := strconv.Atoi(strings.TrimSpace(value))
			return parent
		}
	}
	return 0
}

// expectNoLaunchers waits until the launchers have ended, which a dead worker cannot wait for.
func (f *farmTest) expectNoLaunchers(was trace) {
	f.Helper()
	f.eventually("launchers have ended", func() bool { return !slices.ContainsFunc(was.launchers, isLauncher) })
}

// expectNoGroups fails the test for each cgroup that is left.
func (f *farmTest) expectNoGroups(was trace) {
	f.Helper()
	err := filepath.WalkDir("/sys/fs/cgroup", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // another test's group that has gone meanwhile
		}
		if d.IsDir() && slices.Contains(was.groups, d.Name()) {
			f.Errorf("cgroup left behind: %s", name)
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		f.Error(err)
	}
}

// mountsBelow counts the mounts below dir.
func mountsBelow(t *testing.T, dir string) int {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(mounts), " "+dir+"/")
}

// expectNoRoots waits until a worker that is up has nothing mounted below dir but
// the folder for mount points: roots are released after the answer is out.
func (f *farmTest) expectNoRoots(dir string) {
	f.Helper()
	f.eventually("no root is mounted", func() bool { return mountsBelow(f.T, dir) == 1 })
}

// filesBelow lists the regular files below dir.
func filesBelow(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return names
}
