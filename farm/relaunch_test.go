package farm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs/mounts"
)

func TestMain(m *testing.M) { launchertest.Main(m) }

// frozen makes a group of the v1 freezer outside of the worker's groups: processes in it react to
// no signal.
func frozen(t *testing.T) (freeze func(pid string), thaw func()) {
	t.Helper()
	const freezer = "/sys/fs/cgroup/freezer"
	dir := filepath.Join(freezer, fmt.Sprintf("test-%d-%s", os.Getpid(), filepath.Base(t.Name())))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skip("needs root and the freezer of cgroup v1: ", err)
	}
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	thaw = func() { write("freezer.state", "THAWED") }
	t.Cleanup(func() {
		thaw()
		for deadline := time.Now().Add(time.Minute); os.Remove(dir) != nil; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Error("the test's group is still busy")
				return
			}
		}
	})
	return func(pid string) { write("cgroup.procs", pid); write("freezer.state", "FROZEN") }, thaw
}

// freezeSleep freezes the sleep in the slot, once there is one.
func freezeSleep(slot *cgroup.Slot, freeze func(pid string)) bool {
	pids, _ := slot.Pids()
	for _, pid := range pids {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); string(name) == "sleep\n" {
			freeze(fmt.Sprint(pid))
			return true
		}
	}
	return false
}

// TestUnkillable: a command with a child that the kernel holds costs the slot its group, but not
// the slot. The command ends within its limits, and the next one runs in a new launcher while the
// first launcher still exists. Its remains are removed when the kernel lets go.
func TestUnkillable(t *testing.T) {
	t.Parallel() // most of it waits
	for _, kind := range []string{sandboxNamespaces, sandboxNone} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			freeze, thaw := frozen(t)
			w := &Worker{Slots: 1, Data: t.TempDir(), Sandbox: kind, Cgroup: cgroupAuto, Logger: zaptest.NewLogger(t)}
			s, err := w.Start(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
			})
			if s.slots[0] == nil {
				t.Skip("no cgroups")
			}
			root, temp := t.TempDir(), t.TempDir()
			command := runner.Command{
				Args: []string{"/bin/sh", "-c", "sleep 1000 & wait"}, Dir: root, Folders: sandbox.Folders{Root: root, TempDir: temp},
				Timeout: 2 * time.Second, Grace: 100 * time.Millisecond,
			}
			go func() {
				for !freezeSleep(s.slots[0], freeze) && t.Context().Err() == nil {
					time.Sleep(time.Millisecond)
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 32*time.Second) // its timeout, and 30 s
			defer cancel()
			held := s.launcher[0]
			if r, err := held.Run(ctx, command); !errors.Is(err, runner.ErrUnkillable) || ctx.Err() != nil {
				t.Fatalf("got %+v, %v; %v", r, err, ctx.Err())
			}
			ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			launcher, err := s.relaunch(ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			command.Args = []string{"/bin/sh", "-c", "exit 7"}
			if r, err := launcher.Run(t.Context(), command); err != nil || r.ExitCode != 7 {
				t.Errorf("the next command: %+v, %v", r, err)
			}
			if kind == sandboxNamespaces {
				select {
				case <-held.Gone():
					t.Error("the process was not held: this tests nothing")
				default:
				}
			}
			thaw()
			for deadline := time.Now().Add(time.Minute); s.retired.count() > 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the old launcher is not buried")
				}
			}
		})
	}
}

// TestGuardIsReplaced kills the guard of a worker's mounts, then a launcher with what it runs: the next
// guard is none of what the launcher has left.
func TestGuardIsReplaced(t *testing.T) {
	w := &Worker{Slots: 1, Data: t.TempDir(), Sandbox: sandboxNone, Cgroup: cgroupAuto, Logger: zaptest.NewLogger(t)}
	s, err := w.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	if s.guard == nil {
		t.Skip("no FUSE")
	}
	kill := func(pid int) {
		t.Helper()
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	killed := s.guard.Pid()
	kill(killed)
	for deadline := time.Now().Add(time.Minute); s.guard.Pid() == 0 || s.guard.Pid() == killed; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(s.guard.Missing())
		}
	}
	guard := s.guard.Pid()
	started := filepath.Join(t.TempDir(), "started")
	go func() {
		for ; t.Context().Err() == nil; time.Sleep(time.Millisecond) {
			if _, err := os.Stat(started); err == nil {
				_ = unix.Kill(s.launcher[0].Pid(), unix.SIGKILL) // Run says so
				return
			}
		}
	}()
	root := t.TempDir()
	_, err = s.launcher[0].Run(t.Context(), runner.Command{
		Args: []string{"/bin/sh", "-c", "setsid sleep 1000 & touch " + started + "; wait"}, Dir: root,
		Folders: sandbox.Folders{Root: root, TempDir: t.TempDir()}, Timeout: time.Minute,
	})
	if !errors.Is(err, runner.ErrLauncherDied) {
		t.Errorf("the launcher died: %v", err)
	}
	if now := s.guard.Pid(); now != guard || unix.Kill(guard, 0) != nil || mounts.Dying(guard) {
		t.Errorf("the guard is %d, want %d: %v", now, guard, s.guard.Missing())
	}
}
