package worker

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/uncharged"
)

// TestHoarders: what has the kernel keep much that nobody is charged for is stopped, and does not run again where it is
// certain who that was.
func TestHoarders(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	program := compiled(t, "testdata/hoarder.c", "-pthread")
	for name, c := range map[string]struct {
		network bool // the machine's, so that it is not certain
		code    codes.Code
	}{
		"netlink":             {false, codes.ResourceExhausted},
		"netlink-of-a-thread": {false, codes.ResourceExhausted},
		"netlink of all":      {true, codes.Unavailable},
		"locks":               {false, codes.ResourceExhausted},
		"locks-of-files":      {false, codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
				slot: launchertest.Slot(t, 0), sandbox: &sandbox.Options{}, own: true,
				change: func(o *Options) { o.Isolation.Sandbox.NoNetwork = !c.network },
			})
			s := spec{shell: program + strings.TrimSuffix(name, " of all")}
			r := f.run(t, s)
			assertCode(t, r, c.code, "nothing is charged for")
			if c.code == codes.ResourceExhausted {
				assertCode(t, f.run(t, s), c.code, "not run again for")
			}
			assertOK(t, f.run(t, spec{shell: "true"}))
		})
	}
}

// TestMemoryOfTheKernel: a command is stopped when the kernel's objects have grown while it ran, and there is little memory left.
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
		h := &hoarder{}
		if found := h.lookAtMachine(c.before); found != nil {
			t.Errorf("%s: the first look finds %+v", name, found)
		}
		h.looks++
		if found := h.lookAtMachine(c.now); (found != nil) != c.stops || c.stops && found.own {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
