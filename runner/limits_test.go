package runner_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// newLimited starts a launcher in a slot of one CPU and little memory.
func newLimited(t *testing.T, version int) (*runner.Launcher, cgroup.Limits) {
	t.Helper()
	slot, limits := launchertest.LimitedSlot(t, version)
	return launchertest.Plain(t, slot), limits
}

// hog returns a command that uses that many MiB of memory in its last process.
func hog(mib int) string { return fmt.Sprintf("head -c %dM /dev/zero | tail >/dev/null", mib) }

func TestOutOfMemory(t *testing.T) {
	// Removed by the test: in a full group the shell's rm may be killed as well.
	inMemory := fmt.Sprintf("/dev/shm/forerunner-test-%d", os.Getpid())
	cases := []struct {
		name, script string
		want         runner.Cause
	}{
		{"enough", hog(4), runner.Exited},
		{"killed by hand", "kill -9 $$", runner.Signaled},
		{"the command itself", "exec sh -c '" + hog(100) + "'", runner.OutOfMemory},
		{"a child, and the command fails", hog(100) + "; exit 3", runner.OutOfMemory},
		{"a child, and the command does not mind", hog(100) + "; exit 0", runner.OutOfMemory},
		{"an orphan", "(setsid sh -c '" + hog(100) + "; touch done' &); while ! test -e done; do sleep 0.02; done", runner.OutOfMemory},
		{"files in memory", "head -c 100M /dev/zero >" + inMemory, runner.OutOfMemory},
		{"enough again", "true", runner.Exited},
	}
	for name, version := range map[string]int{"v1": 1, "v2": 2, "sandbox": 0} {
		t.Run(name, func(t *testing.T) {
			slot, limits := launchertest.LimitedSlot(t, version)
			o := runner.LauncherOptions{Cgroup: slot}
			if name == "sandbox" {
				o.Sandbox = &sandbox.Options{}
			}
			l := launchertest.Start(t, o)
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					cmd := launchertest.Shell(t, c.script)
					cmd.Timeout = 2 * time.Minute // an emulated processor takes 20 s for some
					r := launchertest.Run(t, l, cmd)
					if err := os.RemoveAll(inMemory); err != nil {
						t.Fatal(err)
					}
					if r.Cause != c.want {
						t.Fatalf("got %+v, want %v", r, c.want)
					}
					if (c.want == runner.OutOfMemory) != (r.Group.OOMKills > 0) || r.Group.MemoryPeak > limits.Memory {
						t.Errorf("group: %+v", *r.Group)
					}
				})
			}
		})
	}
}

// Under v1, where the other processes continue.
func TestOutOfMemoryOnTheWayToATimeout(t *testing.T) {
	l, _ := newLimited(t, 0)
	cmd := launchertest.Shell(t, hog(100)+"; touch ready; sleep 1000")
	cmd.Timeout, cmd.Stalled = 100*time.Millisecond, untilReady(&cmd)
	if r := launchertest.Run(t, l, cmd); r.Cause != runner.OutOfMemory {
		t.Errorf("got %+v", r)
	}
}

func TestCommandsSeeTheirSlot(t *testing.T) {
	for _, v := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) {
			l, limits := newLimited(t, v)
			cmd := launchertest.Shell(t, "nproc; grep Cpus_allowed_list /proc/self/status")
			launchertest.Run(t, l, cmd)
			want := fmt.Sprintf("1\nCpus_allowed_list:\t%d\n", limits.CPUs[0])
			if got := launchertest.Read(t, cmd.Stdout); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd = launchertest.Command(t, self)
			cmd.Env = append(cmd.Env, procsVar+"=1", "GORACE="+os.Getenv("GORACE"))
			launchertest.Run(t, l, cmd)
			if got := launchertest.Read(t, cmd.Stdout); got != "1 1\n" {
				t.Errorf("a Go program sees %q", got)
			}
			// Too many processes.
			cmd = launchertest.Shell(t, "for i in $(seq 200); do sleep 5 & done; wait")
			launchertest.Run(t, l, cmd)
			if got := launchertest.Read(t, cmd.Stderr); !strings.Contains(got, "fork") {
				t.Errorf("200 processes: stderr %q", got)
			}
		})
	}
}

func TestGroupCountsWhatNobodyWaitedFor(t *testing.T) {
	l, _ := newLimited(t, 0)
	r := launchertest.Run(t, l, launchertest.Shell(t, "(setsid timeout 0.2 sh -c 'while :; do :; done; :' &); sleep 0.3"))
	if used := r.Usage.UserTime.AsDuration() + r.Usage.SystemTime.AsDuration(); used < 10*time.Millisecond {
		t.Errorf("used %s of CPU; %+v", used, *r.Group)
	}
}

// TestOrphansDoNotAddUp: processes that a command leaves to the launcher, and that have ended, do not
// keep it from starting others.
func TestOrphansDoNotAddUp(t *testing.T) {
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			slot := launchertest.Slot(t, version)
			// A launcher that has no CPU for a tenth of a second may be as many behind.
			if err := slot.Limit(cgroup.Limits{Pids: 300}); err != nil {
				t.Fatal(err)
			}
			cmd := launchertest.Shell(t, "i=0; while [ $i -lt 2000 ]; do (:&); i=$((i+1)); done; exit 3")
			r := launchertest.Run(t, launchertest.Sandboxed(t, slot), cmd)
			if said := launchertest.Read(t, cmd.Stderr); r.ExitCode != 3 || said != "" {
				t.Errorf("got %+v: %s", r, said)
			}
		})
	}
}
