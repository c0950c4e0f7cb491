package runner

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
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

// What sockets hold counts for the slot, though cgroup v1 does not count it by itself.
func TestMemoryOfSockets(t *testing.T) {
	slot := newSlot(t, 1)
	const memory = 64 << 20
	if err := slot.Limit(cgroup.Limits{Memory: memory}); err != nil {
		t.Fatal(err)
	}
	l := newSandbox(t, slot)
	before := socketPages(t)
	cmd := abuse(t, "fill sockets")
	cmd.User, cmd.NoNetwork = ownIDs, true
	openParents(t, cmd.Dir)
	sandboxed := sandboxed(t, l, cmd)
	ended := make(chan error, 1)
	go func() { _, err := l.Run(t.Context(), sandboxed); ended <- err }()
	eventually(t, "the sockets are full", func() bool {
		_, err := os.Stat(filepath.Join(cmd.Dir, "taken"))
		return err == nil
	})
	if held := (socketPages(t) - before) * os.Getpagesize(); held > memory {
		t.Errorf("sockets of a slot of %d MiB hold %d MiB", memory>>20, held>>20)
	}
	if err := os.WriteFile(filepath.Join(cmd.Dir, "enough"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// socketPages are those that the sockets of the machine hold.
func socketPages(t *testing.T) (pages int) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/sockstat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if _, mem, ok := strings.Cut(line, " mem "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(mem))
			pages += n
		}
	}
	return pages
}
