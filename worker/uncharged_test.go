package worker

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
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
		"locks-of-files":      {false, codes.Unavailable},
		"mounts":              {false, codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
				slot: launchertest.Slot(t, 0), sandbox: &sandbox.Options{}, own: true,
				change: func(o *Options) { o.Isolation.Sandbox.NoNetwork = !c.network },
			})
			// What there is of others is measured just after the command has begun.
			s := spec{shell: "sleep 2; " + program + strings.TrimSuffix(name, " of all")}
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
		u := &unchargedWatch{}
		if found := u.lookAtMachine(c.before); found != nil {
			t.Errorf("%s: the first look finds %+v", name, found)
		}
		u.looks++
		if found := u.lookAtMachine(c.now); (found != nil) != c.stops || c.stops && found.own {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestWhoseLocks has locks of commands and of others beside them: a command is stopped for too
// many, and it is certain that they are its own only if those are too many by themselves.
func TestWhoseLocks(t *testing.T) {
	type locks struct{ all, own int }
	for name, c := range map[string]struct {
		before int
		err    error // of the first count
		now    locks
		want   *bool // nil: it goes on
	}{
		"few":                        {10, nil, locks{1000, 1000}, nil},
		"as many as there can be":    {10, nil, locks{10 + mostLocks, mostLocks}, nil},
		"many of its own":            {10, nil, locks{11 + mostLocks, mostLocks + 1}, new(true)},
		"many of its own, others go": {1000, nil, locks{1 + mostLocks, mostLocks + 1}, new(true)},
		"many of others":             {10, nil, locks{11 + mostLocks, 0}, new(false)},
		"half of each":               {10, nil, locks{70_000, 33_000}, new(false)},
		"they were there before":     {2 * mostLocks, nil, locks{2*mostLocks + 10, 10}, nil},
		"not counted at first":       {0, errors.New("no"), locks{11 + mostLocks, 0}, nil},
		"too many at first":          {2*mostLocks + 1, nil, locks{4 * mostLocks, 0}, nil},
	} {
		u := &unchargedWatch{lately: &lockCount{}, count: func(int, []int) (int, int, error) { return c.before, 0, c.err }}
		if found := u.lookAtLocks(nil); found != nil {
			t.Errorf("%s: the first look finds %+v", name, found)
		}
		u.looks++
		u.count = func(most int, _ []int) (int, int, error) { return min(c.now.all, most), c.now.own, nil }
		if found := u.lookAtLocks(nil); (found != nil) != (c.want != nil) || found != nil && found.own != *c.want {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestWhoseFileSystems has file systems of commands and of others beside them.
func TestWhoseFileSystems(t *testing.T) {
	for name, c := range map[string]struct {
		before int
		err    error // of the first look
		now    int
		own    int // mounts
		want   *bool
	}{
		"few":                     {50, nil, 500, 400, nil},
		"as many as there can be": {50, nil, 50 + mostFileSystems, 1, nil},
		"its own":                 {50, nil, 51 + mostFileSystems, 1 + mostFileSystems, new(true)},
		"of others":               {50, nil, 51 + mostFileSystems, 30, new(false)},
		"not known at first":      {0, errors.New("no"), 51 + mostFileSystems, 1 + mostFileSystems, nil},
	} {
		u := &unchargedWatch{
			fileSystems: func() (int, error) { return c.before, c.err }, mounts: func([]int, int) int { return c.own }, mostSystems: mostFileSystems,
		}
		if found := u.lookAtFileSystems(nil); found != nil {
			t.Errorf("%s: the first look finds %+v", name, found)
		}
		u.looks++
		u.fileSystems = func() (int, error) { return c.now, nil }
		if found := u.lookAtFileSystems(nil); (found != nil) != (c.want != nil) || found != nil && found.own != *c.want {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// TestLockCount: commands that begin at the same time share a count, and one that hangs holds up
// those of its second only.
func TestLockCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c lockCount
		hangs, counts := make(chan struct{}), 0
		results := make(chan int, 3)
		get := func() {
			n, err := c.get(func(int, []int) (int, int, error) {
				counts++
				n := counts
				if n == 1 {
					<-hangs
				}
				return n, 0, nil
			})
			if err != nil {
				t.Error(err)
			}
			results <- n
		}
		go get()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		get()
		get()
		if a, b := <-results, <-results; a != 2 || b != 2 {
			t.Errorf("counts %d and %d, want the second one twice", a, b)
		}
		close(hangs)
		if n := <-results; n != 1 {
			t.Errorf("count %d, want the first one", n)
		}
	})
}
