package worker

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/census"
	"github.com/forerunner-build/forerunner/worker/uncharged"
)

// TestUncharged: what uses much memory of the kernel that nobody is charged for is stopped, and
// does not run again where it is certain who that was.
func TestUncharged(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	program := compiled(t, "testdata/uncharged.c", "-pthread")
	for name, c := range map[string]struct {
		network bool // the machine's, so that it is not certain
		code    codes.Code
	}{
		"netlink":             {false, codes.ResourceExhausted},
		"netlink-of-a-thread": {false, codes.ResourceExhausted},
		"netlink of all":      {true, codes.Unavailable},
		"locks":               {false, codes.ResourceExhausted},
		"locks-of-files":      {false, codes.ResourceExhausted},
		"locks-of-mapped":     {false, codes.Unavailable}, // no process has these files open
		"mounts":              {false, codes.ResourceExhausted},
		"hidden-mounts":       {false, codes.Unavailable},
		"copies-of-mounts":    {false, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
				slot: launchertest.Slot(t, 0), sandbox: &sandbox.Options{}, own: true,
				change: func(o *Options) { o.Isolation.Sandbox.NoNetwork = !c.network },
			})
			s := spec{shell: program + strings.TrimSuffix(name, " of all")}
			r := f.run(t, s)
			assertCode(t, r, c.code, "which its memory limit does not count")
			if c.code == codes.ResourceExhausted {
				assertCode(t, f.run(t, s), c.code, "not run again for")
			}
			assertOK(t, f.run(t, spec{shell: "true"}))
		})
	}
}

// TestMemoryOfTheKernel: a command is stopped when the kernel's objects have grown while it ran,
// and there is little memory left.
func TestMemoryOfTheKernel(t *testing.T) {
	const all = 80 << 30
	for name, c := range map[string]struct {
		before, now uncharged.Memory
		stops       bool
	}{
		"they have grown":                {uncharged.Memory{Total: all, Kernel: 1 << 30}, uncharged.Memory{Total: all, Available: 9 << 30, Kernel: 12 << 30}, true},
		"there is memory":                {uncharged.Memory{Total: all, Kernel: 1 << 30}, uncharged.Memory{Total: all, Available: 11 << 30, Kernel: 12 << 30}, false},
		"they were there before":         {uncharged.Memory{Total: all, Kernel: 9 << 30}, uncharged.Memory{Total: all, Available: 9 << 30, Kernel: 12 << 30}, false},
		"there was little memory before": {uncharged.Memory{Total: all, Available: 1, Kernel: 20 << 30}, uncharged.Memory{Total: all, Available: 1, Kernel: 20 << 30}, false},
	} {
		u := &unchargedWatch{kernel: c.before.Kernel}
		if found := u.lookAtMachine(c.before); found != nil {
			t.Errorf("%s: the first look finds %+v", name, found)
		}
		if found := u.lookAtMachine(c.now); (found != nil) != c.stops || c.stops && found.own {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestWhenToCount: locks and file systems are counted once a second, and earlier if the kernel's
// small objects grow.
func TestWhenToCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := 0
		u := &unchargedWatch{scarce: &scarceObjects{kinds: []scarceKind{{"objects", census.New(census.Kind{
			Most: 1, Countable: 1, All: func(int) (int, error) { counts++; return 0, nil },
		})}}}}
		for i, step := range []struct {
			wait   time.Duration
			kernel int64
			counts int
		}{
			{0, 50 << 20, 1},
			{100 * time.Millisecond, 50 << 20, 1},
			{100 * time.Millisecond, 58 << 20, 1},
			{900 * time.Millisecond, 58 << 20, 2},
			{100 * time.Millisecond, 67 << 20, 3},
		} {
			time.Sleep(step.wait)
			if age, due := u.due(step.kernel); due {
				if found := u.countScarce(t.Context(), nil, step.kernel, age); found != nil {
					t.Errorf("look %d: %+v", i, found)
				}
			}
			if counts != step.counts {
				t.Errorf("look %d: %d counts, want %d", i, counts, step.counts)
			}
		}
	})
}

// TestAllAreStopped: when there is too much and nobody knows whose it is, the watch of a command
// stops it without a look of its own, which its processes can make long.
func TestAllAreStopped(t *testing.T) {
	c := census.New(census.Kind{Most: 1, Countable: 1, All: func(int) (int, error) { return 3, nil }})
	if got := c.Look(t.Context(), nil, time.Second); got != census.Unknown {
		t.Fatalf("verdict %d", got)
	}
	s := &scarceObjects{kinds: []scarceKind{{"objects", c}}}
	closing, err := s.gate.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.gate.Leave()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.settle(ended)
	stopped := false
	u := &unchargedWatch{scarce: s, launcher: launchertest.Plain(t, nil), closing: closing}
	if found := u.until(t.Context(), func() { stopped = true }); !stopped || found == nil || found.own || found.what != "objects" {
		t.Errorf("stopped: %v, %+v", stopped, found)
	}
}
