package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onSettledThread calls f on a thread that lives in the slot's groups meanwhile.
func onSettledThread(t *testing.T, s *Slot, f func()) {
	t.Helper()
	done := make(chan error)
	var settle func()
	settle = func() {
		runtime.LockOSThread() // never unlocked: the thread ends, or, if it is the first, runs nothing more
		if unix.Gettid() == unix.Getpid() {
			go settle()
			return
		}
		err := s.SettleThread()
		if err == nil {
			f()
		}
		for _, group := range s.handle.Threads {
			err = errors.Join(err, moveThread(filepath.Dir(filepath.Dir(filepath.Dir(group)))))
		}
		done <- err
	}
	go settle()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func newLimitedSlot(t *testing.T, version int, l Limits) *Slot {
	t.Helper()
	s := newSlot(t, version)
	for _, c := range controllers {
		if _, ok := s.controls[c]; !ok {
			missing(t, fmt.Errorf("controller %s cannot be used", c))
		}
	}
	if err := s.Limit(l); err != nil {
		t.Fatal(err)
	}
	return s
}

// output runs a shell script in the slot to its end.
func output(t *testing.T, s *Slot, script string) string {
	t.Helper()
	var out strings.Builder
	onSettledThread(t, s, func() {
		c := exec.Command("/bin/sh", "-c", script)
		c.Stdout, c.Stderr = &out, &out
		if err := start(s, c); err != nil {
			t.Error(err)
			return
		}
		_ = c.Wait() // its output is the result
	})
	if err := s.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func meter(t *testing.T, s *Slot) *Meter {
	t.Helper()
	m, err := s.Meter()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// measured returns the usage of f.
func measured(t *testing.T, m *Meter, f func()) Usage {
	t.Helper()
	if err := m.Begin(); err != nil {
		t.Fatal(err)
	}
	f()
	u, err := m.End()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// hog returns a shell command that uses that many MiB of memory, in a process of its own.
func hog(mib int) string {
	return fmt.Sprintf("head -c %dM /dev/zero | tail >/dev/null", mib)
}

// TestLimitsAreWritten reads the control files of memory, also those whose limit only shows with
// swap.
func TestLimitsAreWritten(t *testing.T) {
	want := map[int]map[string]string{
		1: {"memory.limit_in_bytes": "33554432", "memory.memsw.limit_in_bytes": "33554432", "memory.kmem.tcp.limit_in_bytes": "4194304"},
		2: {"memory.max": "33554432", "memory.swap.max": "0", "memory.oom.group": "1"},
	}
	eachVersion(t, func(t *testing.T, version int) {
		s := newLimitedSlot(t, version, Limits{Memory: 32 << 20, Sockets: 4 << 20})
		memory := s.controls["memory"]
		for _, dir := range []string{memory.dir, filepath.Join(memory.dir, runName)} {
			for file, value := range want[memory.version] {
				got, err := os.ReadFile(filepath.Join(dir, file))
				if os.IsNotExist(err) {
					got = []byte(value) // a kernel that does not account it
				} else if err != nil {
					t.Fatal(err)
				}
				if strings.TrimSpace(string(got)) != value {
					t.Errorf("%s/%s is %s, want %s", dir, file, got, value)
				}
			}
		}
	})
}

func TestProcessesSeeTheirCPUs(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		all, err := Measure()
		if err != nil {
			t.Fatal(err)
		}
		last := all.CPUs[len(all.CPUs)-1]
		s := newLimitedSlot(t, version, Limits{CPUs: []int{last}})
		if got := output(t, s, "nproc; grep Cpus_allowed_list /proc/self/status"); got !=
			fmt.Sprintf("1\nCpus_allowed_list:\t%d\n", last) {
			t.Errorf("got %q", got)
		}
	})
}

func TestMemoryLimitKills(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		const limit = 32 << 20
		s := newLimitedSlot(t, version, Limits{Memory: limit})
		m := meter(t, s)
		u := measured(t, m, func() { output(t, s, hog(8)) })
		if u.OOMKills != 0 || u.MemoryPeak < 8<<20 || u.MemoryPeak > limit {
			t.Errorf("8 MiB: got %+v", u)
		}
		u = measured(t, m, func() { output(t, s, hog(100)) })
		if u.OOMKills == 0 || !u.LimitReached || u.MemoryPeak < limit/2 || u.MemoryPeak > limit {
			t.Errorf("100 MiB: got %+v", u)
		}
		// Earlier usage does not count again.
		u = measured(t, m, func() { output(t, s, "true") })
		if u.OOMKills != 0 || u.LimitReached || u.MemoryPeak > limit/2 {
			t.Errorf("nothing: got %+v", u)
		}
	})
}

func TestMemoryLimitHoldsForFilesInMemory(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newLimitedSlot(t, version, Limits{Memory: 32 << 20})
		m := meter(t, s)
		name := fmt.Sprintf("/dev/shm/forerunner-%s", testName(t))
		t.Cleanup(func() { os.Remove(name) })
		u := measured(t, m, func() { output(t, s, "head -c 100M /dev/zero >"+name) })
		if u.OOMKills == 0 {
			t.Errorf("got %+v", u)
		}
	})
}

func TestPidsLimitStopsForks(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newLimitedSlot(t, version, Limits{Pids: 8})
		// The shell itself is one of them; one that cannot fork gives up.
		got := output(t, s, "for i in 1 2 3 4 5 6 7; do sleep 100 >/dev/null 2>&1 & done; echo seven; sleep 0 && echo eight")
		if !strings.HasPrefix(got, "seven\n") || strings.Contains(got, "eight") {
			t.Errorf("got %q", got)
		}
	})
}

func TestQuotaThrottles(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newLimitedSlot(t, version, Limits{Quota: 50})
		m := meter(t, s)
		// Work of several periods' quota, however little of a CPU this machine has to spare.
		u := measured(t, m, func() { output(t, s, "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done") })
		if u.Throttled == 0 || u.User+u.System == 0 {
			t.Errorf("got %+v", u)
		}
	})
}

func TestUsageCountsOrphans(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newLimitedSlot(t, version, Limits{})
		m := meter(t, s)
		u := measured(t, m, func() {
			output(t, s, "setsid timeout 0.2 sh -c 'while :; do :; done' & sleep 0.3")
		})
		if used := u.User + u.System; used < 10*time.Millisecond {
			t.Errorf("used %s of CPU", used)
		}
	})
}

func TestWritesAreCounted(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newLimitedSlot(t, version, Limits{})
		if _, ok := s.controls["io"]; !ok {
			t.Skip("only v2 counts them")
		}
		m := meter(t, s)
		file := filepath.Join(t.TempDir(), "file")
		if out := output(t, s, "dd if=/dev/zero of="+file+" bs=1M count=1 oflag=direct status=none"); out != "" {
			t.Skipf("no direct writes here: %s", out)
		}
		u := measured(t, m, func() {
			output(t, s, "dd if=/dev/zero of="+file+" bs=1M count=3 oflag=direct status=none")
		})
		if u.WrittenBytes < 3<<20 {
			t.Errorf("got %+v", u)
		}
	})
}

func TestGroupsOfControllersAreCleanedUp(t *testing.T) {
	o := Options{Name: testName(t)}
	dead := openParent(t, o)
	s, err := dead.Slot("3")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Limit(Limits{Memory: 32 << 20}); err != nil {
		t.Fatal(err)
	}
	die(t, dead)
	p := openParent(t, o)
	for name, c := range p.controls {
		if _, err := os.Stat(slotDir(c.dir, "3")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: slot is left: %v", name, err)
		}
	}
	if s, err = p.Slot("3"); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
