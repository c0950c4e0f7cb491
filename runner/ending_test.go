package runner_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
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

func withScripts(t *testing.T, c runner.Command) runner.Command {
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
	launchertest.EachKind(t, func(t *testing.T, l *runner.Launcher) {
		for _, c := range clingers {
			t.Run(c.name, func(t *testing.T) {
				r := launchertest.Run(t, l, withScripts(t, launchertest.Shell(t, c.script+"\nexit 9")))
				if r.Cause != runner.Exited || r.ExitCode != 9 {
					t.Errorf("got %+v", r)
				}
				launchertest.AssertNothingLeft(t)
			})
		}
	})
}

func TestNothingIsLeftAfterTimeout(t *testing.T) {
	launchertest.EachKind(t, func(t *testing.T, l *runner.Launcher) {
		for _, c := range clingers {
			t.Run(c.name, func(t *testing.T) {
				cmd := withScripts(t, launchertest.Shell(t, "trap '' TERM\n: >deaf\n"+c.script+"\nwhile :; do sleep 1000; done"))
				cmd.Timeout, cmd.Grace = 200*time.Millisecond, 50*time.Millisecond
				assertKilled(t, cmd, launchertest.Run(t, l, cmd))
				launchertest.AssertNothingLeft(t)
			})
		}
	})
}

// assertKilled fails unless the timeout killed a command. On a busy machine it may have died of SIGTERM
// before it was deaf to that, which it shows by a file.
func assertKilled(t *testing.T, cmd runner.Command, r runner.Result) {
	t.Helper()
	_, err := os.Stat(filepath.Join(cmd.Dir, "deaf"))
	isDeaf := err == nil
	if r.Cause != runner.TimedOut || r.Signal != "SIGKILL" && (isDeaf || r.Signal != "SIGTERM") {
		t.Errorf("got %+v", r)
	}
}

// Root may leave its groups; the process tree still knows.
func TestLeavingTheGroupDoesNotHelp(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			slot := launchertest.Slot(t, version)
			l := launchertest.Plain(t, slot)
			outside := filepath.Join(filepath.Dir(filepath.Dir(slot.Handle().Dir)), "cgroup.procs")
			cmd := launchertest.Shell(t, "(setsid sh -c 'echo $$ >"+outside+" && touch out; sleep 1000; :' &)\n"+
				"while ! [ -e out ]; do sleep 0.01; done; exit 0")
			if r := launchertest.Run(t, l, cmd); r.ExitCode != 0 {
				t.Errorf("got %+v", r)
			}
			launchertest.AssertNothingLeft(t)
		})
	}
}

func TestGroupIsUsed(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			slot := launchertest.Slot(t, version)
			l := launchertest.Plain(t, slot)
			for i := range 3 { // also after the group was killed
				cmd := launchertest.Shell(t, "cat /proc/self/cgroup; setsid sleep 1000 &")
				if r := launchertest.Run(t, l, cmd); r.Cause != runner.Exited {
					t.Fatalf("run %d: %+v", i, r)
				}
				name := "/slot-0/run\n"
				if out := launchertest.Read(t, cmd.Stdout); !strings.Contains(out, name) {
					t.Errorf("run %d: the command is in %s, want %s", i, out, name)
				}
			}
		})
	}
}

func TestDeathOfTheLauncher(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			slot := launchertest.Slot(t, version)
			l := launchertest.Plain(t, slot)
			cmd := launchertest.Shell(t, "trap '' TERM; setsid sleep 1000 & kill -9 $PPID; sleep 1000; :")
			if r, err := l.Run(t.Context(), cmd); !errors.Is(err, runner.ErrLauncherDied) {
				t.Errorf("got %+v, %v", r, err)
			}
			launchertest.AssertNothingLeft(t)
			if _, err := l.Run(t.Context(), cmd); !errors.Is(err, runner.ErrLauncherDied) {
				t.Errorf("afterwards: %v", err)
			}
			// Another one takes its place in the same group.
			l = launchertest.Plain(t, slot)
			if r := launchertest.Run(t, l, launchertest.Shell(t, "exit 2")); r.ExitCode != 2 {
				t.Errorf("got %+v", r)
			}
		})
	}
}

// The kernel ends a process namespace with its first process.
func TestDeathOfTheLauncherInASandbox(t *testing.T) {
	l := launchertest.Sandboxed(t, nil)
	cmd := launchertest.Complete(t, l, launchertest.Shell(t, "trap '' TERM; setsid sleep 1000 & touch ready; sleep 1000; :"))
	go func() {
		for {
			if _, err := os.Stat(filepath.Join(cmd.Dir, "ready")); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if err := unix.Kill(l.Pid(), unix.SIGKILL); err != nil {
			t.Error(err)
		}
	}()
	if r, err := l.Run(t.Context(), cmd); !errors.Is(err, runner.ErrLauncherDied) {
		t.Errorf("got %+v, %v", r, err)
	}
	launchertest.AssertNothingLeft(t)
}

// TestDeathOfTheLauncherWithoutGroup: processes that detached from the command end with it, and
// commands of other launchers continue.
func TestDeathOfTheLauncherWithoutGroup(t *testing.T) {
	dir := t.TempDir()
	other := launchertest.Plain(t, nil)
	ended := make(chan runner.Result, 1)
	go func() {
		ended <- launchertest.Run(t, other, launchertest.Shell(t, "touch "+dir+"/runs; until test -e "+dir+"/end; do sleep 0.1; done; exit 3"))
	}()
	launchertest.Eventually(t, "the other command runs", func() bool { _, err := os.Stat(dir + "/runs"); return err == nil })
	for range 3 {
		l := launchertest.Plain(t, nil)
		r, err := l.Run(t.Context(), launchertest.Shell(t, `trap '' TERM HUP
			setsid sh -c 'trap "" TERM; mark=left; sleep 1000; :' &
			(setsid sh -c 'sleep 1000; :' left &)
			kill -9 $PPID; sleep 1000; :`))
		if !errors.Is(err, runner.ErrLauncherDied) || errors.Is(err, runner.ErrUnkillable) {
			t.Errorf("got %+v, %v", r, err)
		}
		if left := launchertest.Left(); len(left) > 2 { // the shell of the other one, and its sleep
			t.Errorf("%d processes are left beside those of the other command", len(left)-2)
		}
	}
	if err := os.WriteFile(dir+"/end", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := <-ended; r.ExitCode != 3 {
		t.Errorf("the other command: %+v", r)
	}
	launchertest.AssertNothingLeft(t)
}

// TestDeathOfTheLauncherSparesOthers: a child of the worker that is older than its launchers, such
// as the guard of mounts, does not end with one of them.
func TestDeathOfTheLauncherSparesOthers(t *testing.T) {
	worker := exec.Command("/proc/self/exe")
	worker.Env = append(os.Environ(), guardedVar+"=1", "MARK="+launchertest.Mark())
	if out, err := worker.CombinedOutput(); err != nil || string(out) != "<nil>\n" {
		t.Errorf("%s, %v", out, err)
	}
	launchertest.AssertNothingLeft(t)
}

// TestProcessesWithoutGroup: a command's processes are known without a group, wherever they are.
func TestProcessesWithoutGroup(t *testing.T) {
	for name, l := range map[string]*runner.Launcher{"plain": launchertest.Plain(t, nil), "in a sandbox": launchertest.Sandboxed(t, nil)} {
		if pids := l.Processes(); len(pids) > 0 {
			t.Errorf("%s: processes %v before the command", name, pids)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := l.Run(ctx, launchertest.Complete(t, l, launchertest.Shell(t, "(setsid sleep 1000 &); setsid sleep 1000 & sleep 1000; :")))
			ended <- err
		}()
		launchertest.Eventually(t, name+": its processes are there", func() bool { return len(l.Processes()) == 4 })
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDeathOfTheWorker(t *testing.T) {
	for _, c := range []struct {
		version int
		stopped bool // the launcher, before the worker dies
	}{{version: inSandbox}, {version: -1}, {version: 1}, {version: 2}, {-1, true}, {1, true}} {
		version := c.version
		t.Run(fmt.Sprintf("group %d, stopped %t", version, c.stopped), func(t *testing.T) {
			group := fmt.Sprintf("test-%d-death", os.Getpid())
			root := t.TempDir()
			ready := filepath.Join(root, "ready")
			worker := exec.Command("/proc/self/exe", "/bin/sh", "-c", `trap '' TERM HUP
				setsid sh -c 'trap "" TERM; sleep 1000; :' &
				(setsid sleep 1000 &)
				touch ready; sleep 1000; :`)
			worker.Env = append(os.Environ(), fmt.Sprintf("%s=%d", helperVar, version), "GROUP="+group, "MARK="+launchertest.Mark(), "ROOT="+root)
			worker.Stderr = os.Stderr
			if err := worker.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = worker.Process.Kill() // for a test that failed halfway
				_ = worker.Wait()
				removeGroup(t, version, group)
			})
			launchertest.Eventually(t, "the command runs", func() bool { _, err := os.Stat(ready); return err == nil })
			launcher := launchertest.ChildOf(t, worker.Process.Pid)
			launchertest.Eventually(t, "all that it starts runs", func() bool { return len(launchertest.Left()) >= 4 })
			if c.stopped {
				if err := unix.Kill(launcher.PID, unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
			}
			if err := worker.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			launchertest.Eventually(t, "everything is gone", func() bool {
				return !launcher.Alive() && len(launchertest.Left()) == 0
			})
		})
	}
}

func TestOneCommandAtATime(t *testing.T) {
	l := launchertest.Plain(t, nil)
	cmd := launchertest.Shell(t, "touch ready; trap '' TERM; sleep 1000; :")
	ended := make(chan error, 1)
	go func() {
		_, err := l.Run(t.Context(), cmd)
		ended <- err
	}()
	launchertest.Eventually(t, "the command runs", func() bool {
		_, err := os.Stat(filepath.Join(cmd.Dir, "ready"))
		return err == nil
	})
	if _, err := l.Run(t.Context(), cmd); !errors.Is(err, runner.ErrBusy) {
		t.Errorf("second Run: %v", err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, runner.ErrClosed) {
		t.Errorf("Run that was closed upon: %v", err)
	}
	launchertest.AssertNothingLeft(t)
	if _, err := l.Run(t.Context(), cmd); !errors.Is(err, runner.ErrClosed) {
		t.Errorf("Run after Close: %v", err)
	}
}

func TestManyLaunchers(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 6 {
		l := launchertest.Plain(t, nil)
		wg.Go(func() {
			for k := range 10 {
				want := (i*10 + k) % 100
				cmd := launchertest.Shell(t, fmt.Sprintf("setsid sleep 1000 & echo %d; exit %d", want, want))
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
	launchertest.AssertNothingLeft(t)
}

// TestForkBomb: a bomb that never stops forking reaches its slot's limit of processes, in a
// sandbox, and nothing of it remains when it is stopped. In case the limit fails, which is checked
// first, each of its processes ends by itself. Its shell forks once before the bomb does: at the
// limit it could not, and would end.
func TestForkBomb(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			slot := launchertest.Slot(t, version)
			if err := slot.Limit(cgroup.Limits{Pids: 100}); err != nil {
				t.Fatal(err)
			}
			l := launchertest.Sandboxed(t, slot)
			probe := launchertest.Shell(t, "for i in $(seq 110); do sleep 5 & done")
			if launchertest.Run(t, l, probe); !strings.Contains(launchertest.Read(t, probe.Stderr), "ork") {
				t.Fatalf("the number of processes is not limited: %s", launchertest.Read(t, probe.Stderr))
			}
			cmd := launchertest.Complete(t, l, withScripts(t, launchertest.Shell(t, "trap '' TERM; sh endless 600 & exec sleep 600")))
			cmd.Grace = 20 * time.Millisecond
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				defer cancel()
				for text := ""; ctx.Err() == nil && !strings.Contains(text, "ork"); time.Sleep(time.Millisecond) {
					b, _ := os.ReadFile(cmd.Stderr) // it may not be there yet
					text = string(b)
				}
				time.Sleep(200 * time.Millisecond) // at the limit
			}()
			r, err := l.Run(ctx, cmd)
			if err != nil || r.Cause != runner.Cancelled || r.Signal != "SIGKILL" {
				t.Errorf("got %+v, %v", r, err)
			}
			launchertest.AssertNothingLeft(t)
			if r := launchertest.Run(t, l, launchertest.Shell(t, "exit 4")); r.ExitCode != 4 {
				t.Errorf("the next command: %+v", r)
			}
		})
	}
}

// TestThousandProcesses: a timeout ends a thousand processes, each of which has a session of its
// own and ignores SIGTERM, and the launcher is ready for the next command. Each process also ends
// by itself: without a group or a sandbox, a busy machine may be unable to end a bomb.
func TestThousandProcesses(t *testing.T) {
	for name, l := range map[string]*runner.Launcher{"sandbox": launchertest.Sandboxed(t, nil), "v2": launchertest.Plain(t, launchertest.Slot(t, 2))} {
		t.Run(name, func(t *testing.T) {
			cmd := withScripts(t, launchertest.Shell(t, "trap '' TERM; : >deaf; sh bomb 9; sleep 20; :"))
			cmd.Timeout, cmd.Grace = 300*time.Millisecond, 20*time.Millisecond
			assertKilled(t, cmd, launchertest.Run(t, l, cmd))
			launchertest.AssertNothingLeft(t)
			if r := launchertest.Run(t, l, launchertest.Shell(t, "exit 4")); r.ExitCode != 4 {
				t.Errorf("the next command: %+v", r)
			}
		})
	}
}
