package runner

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// scripts that the cases below start; $0 is the script itself.
var scripts = map[string]string{
	// A full binary tree of 2^$1 processes, each in a session of its own.
	"bomb": `trap '' TERM HUP
if [ "$1" -gt 0 ]; then
	setsid sh "$0" $(($1 - 1)) &
	setsid sh "$0" $(($1 - 1)) &
fi
sleep 20; :`,
	// Each process forks others until it cannot (which ends a shell), and none of them
	// does so later than $1 seconds after the first.
	"endless": `trap '' TERM HUP
read now rest </proc/uptime
end=${2:-$((${now%.*} + $1))}
while [ "${now%.*}" -lt "$end" ]; do
	(setsid sh "$0" "$1" "$end" &)
	read now rest </proc/uptime
done`,
	// Each process forks the next one and exits.
	"hop": `if [ "$1" -gt 0 ]; then sh "$0" $(($1 - 1)) & fi`,
}

func withScripts(t *testing.T, c Command) Command {
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// Each of these would outlive its shell.
var clingers = []struct{ name, script string }{
	{"in the background", "sleep 1000 &"},
	{"own session", "setsid sleep 1000 &"},
	{"deaf to signals", "(trap '' TERM HUP INT; sleep 1000; :) &"},
	{"double fork", "(setsid sh -c 'sleep 1000 & sleep 1000 & exit' &)"},
	{"stopped", "(kill -STOP $(sh -c 'echo $PPID')) &"},
	{"holds the output open", "setsid sh -c 'while :; do echo x; sleep 0.01; done' &"},
	{"many in one group", "i=0; while [ $i -lt 150 ]; do sleep 1000 & i=$((i+1)); done"},
	{"bomb of sessions", "sh bomb 6 & sleep 0.1"},
	{"hopping", "sh hop 2000 &"},
}

func TestNothingIsLeftAfterExit(t *testing.T) {
	eachKind(t, func(t *testing.T, l *Launcher) {
		for _, c := range clingers {
			t.Run(c.name, func(t *testing.T) {
				r := run(t, l, withScripts(t, shell(t, c.script+"\nexit 9")))
				if r.Cause != Exited || r.ExitCode != 9 {
					t.Errorf("got %+v", r)
				}
				assertNothingLeft(t)
			})
		}
	})
}

func TestNothingIsLeftAfterTimeout(t *testing.T) {
	eachKind(t, func(t *testing.T, l *Launcher) {
		for _, c := range clingers {
			t.Run(c.name, func(t *testing.T) {
				cmd := withScripts(t, shell(t, "trap '' TERM\n"+c.script+"\nwhile :; do sleep 1000; done"))
				cmd.Timeout, cmd.Grace = 200*time.Millisecond, 50*time.Millisecond
				if r := run(t, l, cmd); r.Cause != TimedOut || r.Signal != "SIGKILL" {
					t.Errorf("got %+v", r)
				}
				assertNothingLeft(t)
			})
		}
	})
}

// Root may leave its groups; the process tree still knows.
func TestLeavingTheGroupDoesNotHelp(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			slot := newSlot(t, version)
			l := newLauncher(t, slot)
			outside := filepath.Join(filepath.Dir(filepath.Dir(slot.Place().Dir)), "cgroup.procs")
			cmd := shell(t, "(setsid sh -c 'echo $$ >"+outside+" && touch out; sleep 1000; :' &)\n"+
				"while ! [ -e out ]; do sleep 0.01; done; exit 0")
			if r := run(t, l, cmd); r.ExitCode != 0 {
				t.Errorf("got %+v", r)
			}
			assertNothingLeft(t)
		})
	}
}

func TestGroupIsUsed(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			slot := newSlot(t, version)
			l := newLauncher(t, slot)
			for i := range 3 { // also after the group was killed
				cmd := shell(t, "cat /proc/self/cgroup; setsid sleep 1000 &")
				if r := run(t, l, cmd); r.Cause != Exited {
					t.Fatalf("run %d: %+v", i, r)
				}
				name := "/slot-0/run\n"
				if out := read(t, cmd.Stdout); !strings.Contains(out, name) {
					t.Errorf("run %d: the command is in %s, want %s", i, out, name)
				}
			}
		})
	}
}

func TestDeathOfTheLauncher(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			l := newLauncher(t, newSlot(t, version))
			cmd := shell(t, "trap '' TERM; setsid sleep 1000 & kill -9 $PPID; sleep 1000; :")
			if r, err := l.Run(t.Context(), cmd); !errors.Is(err, ErrLauncherDied) {
				t.Errorf("got %+v, %v", r, err)
			}
			assertNothingLeft(t)
			if _, err := l.Run(t.Context(), cmd); !errors.Is(err, ErrLauncherDied) {
				t.Errorf("afterwards: %v", err)
			}
			// Another one takes its place in the same group.
			l = newLauncher(t, l.slot)
			if r := run(t, l, shell(t, "exit 2")); r.ExitCode != 2 {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// The kernel ends a process namespace with its first process.
func TestDeathOfTheLauncherInASandbox(t *testing.T) {
	l := newSandbox(t, nil)
	cmd := sandboxed(t, l, shell(t, "trap '' TERM; setsid sleep 1000 & touch ready; sleep 1000; :"))
	go func() {
		for {
			if _, err := os.Stat(filepath.Join(cmd.Dir, "ready")); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := l.proc.Kill(); err != nil {
			t.Error(err)
		}
	}()
	if r, err := l.Run(t.Context(), cmd); !errors.Is(err, ErrLauncherDied) {
		t.Errorf("got %+v, %v", r, err)
	}
	assertNothingLeft(t)
}

// Only what the kernel promises: without a group the command itself dies.
func TestDeathOfTheLauncherWithoutGroup(t *testing.T) {
	l := newLauncher(t, nil)
	if r, err := l.Run(t.Context(), shell(t, "kill -9 $PPID; while :; do :; done")); !errors.Is(err, ErrLauncherDied) {
		t.Errorf("got %+v, %v", r, err)
	}
	eventually(t, "the command is gone", func() bool { return len(marked()) == 0 })
}

func TestDeathOfTheWorker(t *testing.T) {
	for _, version := range []int{inSandbox, -1, 1, 2} {
		t.Run(fmt.Sprintf("group %d", version), func(t *testing.T) {
			group := fmt.Sprintf("test-%d-death", os.Getpid())
			root := t.TempDir()
			ready := filepath.Join(root, "ready")
			worker := exec.Command("/proc/self/exe", "/bin/sh", "-c", `trap '' TERM HUP
				setsid sh -c 'trap "" TERM; sleep 1000; :' &
				(setsid sleep 1000 &)
				touch ready; sleep 1000; :`)
			worker.Env = append(os.Environ(), fmt.Sprintf("%s=%d", helperVar, version), "GROUP="+group, "MARK="+mark(), "ROOT="+root)
			worker.Stderr = os.Stderr
			if err := worker.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = worker.Process.Kill() // for a test that failed halfway
				_ = worker.Wait()
				removeGroup(t, version, group)
			})
			eventually(t, "the command runs", func() bool { _, err := os.Stat(ready); return err == nil })
			launcher := childOf(t, worker.Process.Pid)
			eventually(t, "all that it starts runs", func() bool { return len(marked()) >= 4 })
			if err := worker.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "everything is gone", func() bool {
				now, err := readProcess(launcher.pid)
				same := err == nil && now.start == launcher.start && now.state != 'Z'
				return !same && len(marked()) == 0
			})
		})
	}
}

func childOf(t *testing.T, pid int) process {
	t.Helper()
	all, err := readProcesses()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.ppid == pid {
			return p
		}
	}
	t.Fatalf("process %d has no child", pid)
	return process{}
}

func TestOneCommandAtATime(t *testing.T) {
	l := newLauncher(t, nil)
	cmd := shell(t, "touch ready; trap '' TERM; sleep 1000; :")
	ended := make(chan error, 1)
	go func() {
		_, err := l.Run(t.Context(), cmd)
		ended <- err
	}()
	eventually(t, "the command runs", func() bool {
		_, err := os.Stat(filepath.Join(cmd.Dir, "ready"))
		return err == nil
	})
	if _, err := l.Run(t.Context(), cmd); !errors.Is(err, ErrBusy) {
		t.Errorf("second Run: %v", err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, ErrClosed) {
		t.Errorf("Run that was closed upon: %v", err)
	}
	assertNothingLeft(t)
	if _, err := l.Run(t.Context(), cmd); !errors.Is(err, ErrClosed) {
		t.Errorf("Run after Close: %v", err)
	}
}

func TestManyLaunchers(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 6 {
		l := newLauncher(t, nil)
		wg.Go(func() {
			for k := range 10 {
				want := (i*10 + k) % 100
				cmd := shell(t, fmt.Sprintf("setsid sleep 1000 & echo %d; exit %d", want, want))
				r, err := l.Run(t.Context(), cmd)
				if err != nil || r.ExitCode != want {
					t.Errorf("got %+v, %v; want %d", r, err, want)
					return
				}
				if out, err := os.ReadFile(cmd.Stdout); err != nil || string(out) != fmt.Sprintln(want) {
					t.Errorf("said %q, %v", out, err)
				}
			}
		})
	}
	wg.Wait()
	assertNothingLeft(t)
}
