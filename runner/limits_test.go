package runner

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/sandbox"
)

const limitedMemory = 48 << 20

// newLimited starts a launcher in a slot of one CPU and little memory.
func newLimited(t *testing.T, version int) (*Launcher, cgroup.Limits) {
	t.Helper()
	slot, limits := newLimitedSlot(t, version)
	return newLauncher(t, slot), limits
}

func newLimitedSlot(t *testing.T, version int) (*cgroup.Slot, cgroup.Limits) {
	t.Helper()
	machine, err := cgroup.Measure()
	if err != nil {
		t.Fatal(err)
	}
	limits := cgroup.Limits{CPUs: machine.CPUs[:1], Memory: limitedMemory, Pids: 100}
	slot := newSlot(t, version)
	if err := slot.Limit(limits); err != nil {
		t.Fatal(err)
	}
	return slot, limits
}

// hog uses so many MiB of memory in a process of its own, as its last one.
func hog(mib int) string { return fmt.Sprintf("head -c %dM /dev/zero | tail >/dev/null", mib) }

func TestOutOfMemory(t *testing.T) {
	// Removed by the test: in a full group the shell's rm may be killed as well.
	inMemory := fmt.Sprintf("/dev/shm/forerunner-test-%d", os.Getpid())
	cases := []struct {
		name, script string
		want         Cause
	}{
		{"enough", hog(4), Exited},
		{"killed by hand", "kill -9 $$", Signaled},
		{"the command itself", "exec sh -c '" + hog(100) + "'", OutOfMemory},
		{"a child, and the command fails", hog(100) + "; exit 3", OutOfMemory},
		{"a child, and the command does not mind", hog(100) + "; exit 0", OutOfMemory},
		{"an orphan", "(setsid sh -c '" + hog(100) + "; touch done' &); while ! test -e done; do sleep 0.02; done", OutOfMemory},
		{"files in memory", "head -c 100M /dev/zero >" + inMemory, OutOfMemory},
		{"enough again", "true", Exited},
	}
	for name, version := range map[string]int{"v1": 1, "v2": 2, "sandbox": 0} {
		t.Run(name, func(t *testing.T) {
			slot, limits := newLimitedSlot(t, version)
			o := LauncherOptions{Cgroup: slot}
			if name == "sandbox" {
				o.Sandbox = &sandbox.Options{}
			}
			l := startLauncher(t, o)
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					cmd := shell(t, c.script)
					cmd.Timeout = 20 * time.Second
					r := run(t, l, cmd)
					if err := os.RemoveAll(inMemory); err != nil {
						t.Fatal(err)
					}
					if r.Cause != c.want {
						t.Fatalf("got %+v, want %v", r, c.want)
					}
					if (c.want == OutOfMemory) != (r.Group.OOMKills > 0) || r.Group.MemoryPeak > limits.Memory {
						t.Errorf("group: %+v", *r.Group)
					}
				})
			}
		})
	}
}

// Under v1, where the rest goes on.
func TestOutOfMemoryOnTheWayToATimeout(t *testing.T) {
	l, _ := newLimited(t, 0)
	cmd := shell(t, hog(100)+"; sleep 100")
	cmd.Timeout = 2 * time.Second
	if r := run(t, l, cmd); r.Cause != OutOfMemory {
		t.Errorf("got %+v", r)
	}
}

func TestCommandsSeeTheirSlot(t *testing.T) {
	for _, v := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) {
			l, limits := newLimited(t, v)
			cmd := shell(t, "nproc; grep Cpus_allowed_list /proc/self/status")
			run(t, l, cmd)
			want := fmt.Sprintf("1\nCpus_allowed_list:\t%d\n", limits.CPUs[0])
			if got := read(t, cmd.Stdout); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd = command(t, self)
			cmd.Env = append(cmd.Env, procsVar+"=1")
			run(t, l, cmd)
			if got := read(t, cmd.Stdout); got != "1 1\n" {
				t.Errorf("a Go program sees %q", got)
			}
			// Too many processes.
			cmd = shell(t, "for i in $(seq 200); do sleep 5 & done; wait")
			run(t, l, cmd)
			if got := read(t, cmd.Stderr); !strings.Contains(got, "fork") {
				t.Errorf("200 processes: stderr %q", got)
			}
		})
	}
}

func TestGroupCountsWhatNobodyWaitedFor(t *testing.T) {
	l, _ := newLimited(t, 0)
	r := run(t, l, shell(t, "(setsid timeout 0.2 sh -c 'while :; do :; done; :' &); sleep 0.3"))
	if used := r.Usage.UserTime.AsDuration() + r.Usage.SystemTime.AsDuration(); used < 10*time.Millisecond {
		t.Errorf("used %s of CPU; %+v", used, *r.Group)
	}
}
