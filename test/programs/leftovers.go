package programs

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
	"syscall"
	"testing"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

// A Trace is the traces of a running worker on its machine besides its files.
type Trace struct {
	Launchers []int
	Guards    []int    // processes that remove its mounts if it cannot
	Groups    []string // names of its cgroups, without the path
}

// TraceOf inspects a program that has a worker in it.
func TraceOf(t *testing.T, worker *Process) Trace {
	t.Helper()
	var found Trace
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range processes {
		pid, err := strconv.Atoi(path.Base(dir))
		if err != nil || parentOf(pid) != worker.Pid() {
			continue
		}
		if isGuard(pid) {
			found.Guards = append(found.Guards, pid)
		}
		if !isLauncher(pid) {
			continue
		}
		found.Launchers = append(found.Launchers, pid)
		memberships, err := os.ReadFile(filepath.Join(dir, "cgroup"))
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(strings.ReplaceAll(string(memberships), "\n", "/"), "/") {
			if strings.HasPrefix(part, "forerunner-") && !slices.Contains(found.Groups, part) {
				found.Groups = append(found.Groups, part)
			}
		}
	}
	return found
}

// isLauncher reports whether a process exists and is a launcher.
func isLauncher(pid int) bool { return isCalled(pid, "forerunner-launcher") }

// isGuard does the same of guards.
func isGuard(pid int) bool { return isCalled(pid, "forerunner-guard") }

func isCalled(pid int, name string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.HasPrefix(line, []byte(name+"\x00"))
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

// ExpectNoLaunchers waits until the launchers and the guard have ended, which a dead worker cannot
// wait for.
func (f *Test) ExpectNoLaunchers(was Trace) {
	f.Helper()
	if len(was.Guards) > 1 { // with hard links it has none
		f.Errorf("the worker had guards %v, want one", was.Guards)
	}
	f.Eventually("its guard has ended", func() bool { return !slices.ContainsFunc(was.Guards, isGuard) })
	f.Eventually("launchers have ended", func() bool { return !slices.ContainsFunc(was.Launchers, isLauncher) })
}

// ExpectNoGroups fails the test for each cgroup that is left.
func (f *Test) ExpectNoGroups(was Trace) {
	f.Helper()
	err := filepath.WalkDir("/sys/fs/cgroup", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // another test's group that has been removed since
		}
		if d.IsDir() && slices.Contains(was.Groups, d.Name()) {
			f.Errorf("cgroup left behind: %s", name)
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		f.Error(err)
	}
}

// MountsBelow returns the number of mounts below dir, without the one of all roots' images, which
// lasts as long as a worker, and those that wait for the next actions.
func MountsBelow(t *testing.T, dir string) (n int) {
	t.Helper()
	points, err := mounts.Below(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range points {
		if filepath.Base(point) != ".growing" && !strings.HasPrefix(filepath.Base(filepath.Dir(point)), names.ReadyRoot) {
			n++
		}
	}
	return n
}

// ExpectNoRoots waits until a worker that is up has nothing mounted below dir but
// the folder for mount points: roots are released after the answer is out.
func (f *Test) ExpectNoRoots(dir string) {
	f.Helper()
	f.Eventually("no root is mounted", func() bool { return MountsBelow(f.T, dir) == 1 })
}

// FilesBelow lists the regular files below dir.
func FilesBelow(t *testing.T, dir string) (names []string) {
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

// ExpectNoMounts fails the test for each mount left below dir and detaches it.
func ExpectNoMounts(t *testing.T, dir string) {
	t.Helper()
	points, err := mounts.Below(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, point := range points {
		t.Errorf("mount left behind: %s", point)
		if err := syscall.Unmount(point, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", point, err)
		}
	}
}

// ExpectNoProcess fails the test if a process with exactly these arguments is alive, and ends it.
func ExpectNoProcess(t *testing.T, args ...string) {
	t.Helper()
	want := []byte(strings.Join(args, "\x00") + "\x00")
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		// A process that ends during this takes its file with it.
		if got, err := os.ReadFile(line); err != nil || !bytes.Equal(got, want) {
			continue
		}
		t.Errorf("%s: %q outlived its action", line, args)
		if pid, err := strconv.Atoi(strings.Split(line, "/")[2]); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended by now
		}
	}
}
