package worker

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
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
		"locks-of-mapped":     {false, codes.ResourceExhausted}, // no process has these files open
		"mounts":              {false, codes.ResourceExhausted},
		"hidden-mounts":       {false, codes.ResourceExhausted},
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

// TestHiddenFileSystems: actions with file systems that no mounts show are stopped, are told so, and
// do not run again. The one beside them goes on.
func TestHiddenFileSystems(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	program := compiled(t, "testdata/hidden.c")
	f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
		slots: 2, sandbox: &sandbox.Options{Show: []string{gates(t)}}, own: true,
	})
	s, open := gated(t, "innocent")
	s.timeout = 2 * patience
	innocent := f.start(t, s)
	innocent.reaches(t, "running")
	for _, how := range []string{
		"behind-chroot", "of-bound-namespaces", "detached", "opened", "mapped", "on-the-way", "below-an-overlay",
	} {
		t.Run(how, func(t *testing.T) {
			s := spec{shell: program + how}
			assertCode(t, f.run(t, s), codes.ResourceExhausted, "which its memory limit does not count")
			assertCode(t, f.run(t, s), codes.ResourceExhausted, "not run again for")
		})
	}
	open()
	assertOK(t, innocent.result(t))
}
