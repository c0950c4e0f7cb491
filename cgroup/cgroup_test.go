package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// missing skips the test, or fails it if CI is set.
func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

func testName(t testing.TB) string {
	r := strings.NewReplacer("/", "-", "#", "-", "=", "-")
	return fmt.Sprintf("test-%d-%s", os.Getpid(), r.Replace(t.Name()))
}

func openParent(t testing.TB, o Options) *Parent {
	t.Helper()
	p, err := Open(o)
	if errors.Is(err, ErrUnavailable) {
		missing(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(p.Dir()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("group is left: %v", err)
		}
	})
	return p
}

// newSlot makes a slot and moves the test process to where its starters live, and
// back to where it was at the end.
func newSlot(t testing.TB, version int) *Slot {
	t.Helper()
	p := openParent(t, Options{Name: testName(t), Version: version})
	s, err := p.Slot("0")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		back := filepath.Dir(p.Dir())
		if p.home != "" {
			back = filepath.Join(p.Dir(), asideName) // from where Close takes it back
		}
		if err := enter(back, os.Getpid()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// die does what the death of p's process does: the kernel drops the lock, groups stay, and
// the next process begins where this one did.
func die(t *testing.T, p *Parent) {
	t.Helper()
	if err := errors.Join(p.lock.Close(), p.takeBack()); err != nil {
		t.Fatal(err)
	}
	p.lock = nil
}

// startIn starts a program as Start means it to be done.
func startIn(t testing.TB, s *Slot, argv ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(argv[0], argv[1:]...)
	if err := start(s, c); err != nil {
		t.Fatal(err)
	}
	return c
}

func start(s *Slot, c *exec.Cmd) error {
	return s.Start(func(fd int) error {
		if fd >= 0 {
			c.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
		}
		return c.Start()
	})
}

// script runs a shell script in the slot and returns when it has printed "ready".
func script(t testing.TB, s *Slot, text string) *exec.Cmd {
	t.Helper()
	c := exec.Command("/bin/sh", "-c", text)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := start(s, c); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("script said %q, %v", line, err)
	}
	return c
}

func TestKillRefusesItsOwnProcess(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newSlot(t, version)
		if err := s.Add(os.Getpid()); err != nil {
			t.Fatal(err)
		}
		if err := s.Kill(t.Context()); !errors.Is(err, errSelf) {
			t.Errorf("got %v", err)
		}
		if err := s.Settle(); err != nil {
			t.Fatal(err)
		}
	})
}

// A group that was killed starts commands again, also when another process than the
// one that starts killed it.
func TestStartAfterKill(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newSlot(t, version)
		for range 3 {
			c := script(t, s, "echo ready; read x")
			if err := s.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait() // killed
		}
		again := Attach(s.Handle())
		c := script(t, again, "echo ready; read x")
		if err := s.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // killed
	})
}

func eachVersion(t *testing.T, f func(t *testing.T, version int)) {
	for _, v := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) { f(t, v) })
	}
}

func TestStartPutsTheProcessInTheGroup(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newSlot(t, version)
		c := script(t, s, "echo ready; sleep 1000; :")
		pids, err := s.Pids()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(pids, c.Process.Pid) {
			t.Errorf("pids %v lack the command %d", pids, c.Process.Pid)
		}
		if slices.Contains(pids, os.Getpid()) {
			t.Errorf("pids %v hold the parent", pids)
		}
		if err := s.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("Close with processes inside: %v, want ErrBusy", err)
		}
		if err := s.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // killed
	})
}

// The command line of each case prints "ready" when all its processes have started.
func TestKillLeavesNothing(t *testing.T) {
	cases := []struct{ name, script string }{
		{"plain", "echo ready; sleep 1000; :"},
		{"deaf to SIGTERM", "trap '' TERM; echo ready; sleep 1000; :"},
		{"own session", "setsid sh -c 'echo ready; exec >&-; sleep 1000; :' & wait"},
		{"orphan", "(sh -c 'exec >&-; sleep 1000; :' &) ; echo ready"},
		{"stopped", "echo ready; kill -STOP $$"},
		{"many", "i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; echo ready; wait"},
		{"forks for ever", "echo ready; while :; do (sleep 0.01 &); done"},
	}
	eachVersion(t, func(t *testing.T, version int) {
		s := newSlot(t, version)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				cmd := script(t, s, c.script)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				if err := s.Kill(ctx); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait() // killed or not, it has ended
				if pids, err := s.Pids(); err != nil || len(pids) != 0 {
					t.Errorf("left: %v, %v", pids, err)
				}
			})
		}
	})
}

func TestKillReachesGroupsMadeInside(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newSlot(t, version)
		sub := filepath.Join(s.Handle().Dir, "made by the command", "and deeper")
		c := script(t, s, fmt.Sprintf(
			"mkdir -p '%s' && echo $$ >'%s/cgroup.procs' && echo ready; sleep 1000; :", sub, sub))
		if pids, err := s.Pids(); err != nil || !slices.Contains(pids, c.Process.Pid) {
			t.Fatalf("pids %v, %v: want %d", pids, err, c.Process.Pid)
		}
		if err := s.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // killed
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestKillReachesFrozenGroups: a command that froze a group of its own does not outlive the kill.
func TestKillReachesFrozenGroups(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newSlot(t, version)
		sub := filepath.Join(s.Handle().Dir, "made by the command", "and frozen")
		freeze := map[int]string{1: "echo FROZEN >'%s/freezer.state'", 2: "echo 1 >'%s/cgroup.freeze'"}[version]
		c := script(t, s, fmt.Sprintf("mkdir -p '%s' && sh -c 'echo $$ >\"%s/cgroup.procs\"; exec sleep 1000' & "+
			"until grep -q . '%s/cgroup.procs'; do sleep 0.01; done; "+freeze+"; echo ready; sleep 1000; :", sub, sub, sub, sub))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Kill(ctx); err != nil {
			t.Error(err)
			for _, err := range []error{writeFile(filepath.Join(sub, "freezer.state"), "THAWED"), s.Kill(t.Context())} {
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = c.Wait() // killed
	})
}

func TestKillGivesUpWithItsContext(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newSlot(t, version)
		c := script(t, s, "echo ready; sleep 1000; :")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Kill(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if err := s.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // killed
		if err := s.Kill(ctx); err != nil {
			t.Errorf("empty group, cancelled context: %v", err)
		}
	})
}

func TestAddMovesARunningProcess(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newSlot(t, version)
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if err := s.Add(c.Process.Pid); err != nil {
			t.Error(err)
		}
		if err := s.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		_ = c.Process.Kill() // in case Add failed
		_ = c.Wait()
		if err := s.Add(c.Process.Pid); err == nil {
			t.Error("added a process that is gone")
		}
	})
}

func TestAttachFromElsewhere(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		s := newSlot(t, version)
		c := startIn(t, Attach(s.Handle()), "sleep", "1000")
		if err := s.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		_ = c.Wait() // killed
	})
}

func TestNamesAreHeldAgainstTheLivingOnly(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		core, logs := observer.New(zap.WarnLevel)
		o := Options{Name: testName(t), Version: version, Logger: zap.New(core)}
		dead := openParent(t, o)
		s, err := dead.Slot("3")
		if err != nil {
			t.Fatal(err)
		}
		// Not by Start: this test process must not live in the groups it cleans.
		// One process only: a child that it had before Add would stay outside.
		c := exec.Command("sleep", "1000")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if err := s.Add(c.Process.Pid); err != nil {
			t.Fatal(err)
		}
		// Where this process had to move for dead, it would be another group's name.
		if dead.home == "" {
			if p, err := Open(o); !errors.Is(err, ErrInUse) {
				t.Fatalf("second Open: %v, %v", p, err)
			}
		}
		if err := dead.Close(); !errors.Is(err, ErrBusy) {
			t.Errorf("Close with a process inside: %v, want ErrBusy", err)
		}
		die(t, dead)
		p := openParent(t, o)
		_ = c.Wait() // killed by Open
		if n := logs.Len(); n < 2 || n > 3 {
			t.Errorf("%d warnings about leftovers, want 2: slot and launchers; perhaps worker", n)
		}
		if s, err = p.Slot("3"); err != nil {
			t.Fatalf("slot after clean-up: %v", err)
		}
		if _, err := p.Slot("3"); err == nil {
			t.Error("the same slot was made twice")
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOthersCannotLock: any process that can open the group could lock it, and so keep the owner's
// next process from starting.
func TestOthersCannotLock(t *testing.T) {
	eachVersion(t, func(t *testing.T, version int) {
		o := Options{Name: testName(t), Version: version, Logger: zap.NewNop()}
		p := openParent(t, o)
		if err := os.Chmod(p.Dir(), 0o755); err != nil { // as an older version has made it
			t.Fatal(err)
		}
		die(t, p)
		p = openParent(t, o)
		info, err := os.Stat(p.Dir())
		if err != nil || info.Mode().Perm() != 0o711 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	})
}

func TestBadNames(t *testing.T) {
	for _, name := range []string{"", "a/b", "../x", "a b", "ä", strings.Repeat("x", 129), "a\n"} {
		if _, err := Open(Options{Name: name}); err == nil {
			t.Errorf("Open accepted %q", name)
		}
	}
	if _, err := Open(Options{Name: "x", Version: 3}); err == nil {
		t.Error("Open accepted version 3")
	}
	p := openParent(t, Options{Name: testName(t)})
	if _, err := p.Slot("a/b"); err == nil {
		t.Error("Slot accepted a/b")
	}
}
