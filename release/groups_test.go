package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// groupOfTests begins the names of groups that tests make; the pid of the test follows.
const groupOfTests = "forerunner-installed-"

// sweepGroups removes the groups of tests that were killed, unless something runs there.
func sweepGroups(t *testing.T) {
	t.Helper()
	for _, parent := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/*"} {
		groups, err := filepath.Glob(filepath.Join(parent, groupOfTests+"*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, group := range groups {
			pid, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(group), groupOfTests))
			if err != nil || !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
				continue
			}
			all := groupsIn(group)
			if slices.ContainsFunc(all, func(group string) bool {
				procs, err := os.ReadFile(filepath.Join(group, "cgroup.procs"))
				return err != nil || len(procs) > 0
			}) {
				continue // of a test in another PID namespace
			}
			for _, path := range all {
				if err := syscall.Rmdir(path); err != nil {
					t.Logf("of a test that was killed: %s: %v", path, err)
				}
			}
		}
	}
}

// groupsIn lists groups and those in them, which come first.
func groupsIn(group string) (all []string) {
	_ = filepath.WalkDir(group, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	slices.Reverse(all)
	return all
}

// groups makes the groups that a machine has.
func (m *machine) groups() (list []string) {
	m.Helper()
	parents := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		if parents, err = filepath.Glob("/sys/fs/cgroup/*"); err != nil {
			m.Fatal(err)
		}
	}
	for _, parent := range parents {
		if info, err := os.Lstat(parent); err != nil || !info.IsDir() {
			continue
		}
		group := filepath.Join(parent, fmt.Sprint(groupOfTests, os.Getpid()))
		if err := os.Mkdir(group, 0o755); err != nil {
			m.Fatal(err)
		}
		if err := os.Chmod(group, 0o755); err != nil { // services read it, whatever the umask is
			m.Fatal(err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // those of v1 begin empty
			if text, err := os.ReadFile(filepath.Join(parent, file)); err == nil {
				_ = os.WriteFile(filepath.Join(group, file), text, 0o644)
			}
		}
		list = append(list, group)
	}
	return list
}

// removeGroups removes groups with those in them, once their processes have gone.
func removeGroups(t *testing.T, groups []string) {
	for _, group := range groups {
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			err = nil
			for _, path := range groupsIn(group) {
				err = errors.Join(err, syscall.Rmdir(path))
			}
			if err == nil {
				break
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
}
