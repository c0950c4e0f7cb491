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

// TestHiddenFileSystems: an action with file systems that no mounts show is stopped, and is told so
// where it is certain that it has them. The one beside it goes on.
func TestHiddenFileSystems(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	program := compiled(t, "testdata/hidden.c")
	for how, code := range map[string]codes.Code{
		"behind-chroot":       codes.ResourceExhausted,
		"of-bound-namespaces": codes.ResourceExhausted,
		"detached":            codes.Unavailable,
		"opened":              codes.ResourceExhausted,
		"mapped":              codes.ResourceExhausted,
		"on-the-way":          codes.Unavailable,
		"below-an-overlay":    codes.Unavailable,
	} {
		t.Run(how, func(t *testing.T) {
			f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
				slots: 2, sandbox: &sandbox.Options{Show: []string{gates(t)}}, own: true,
			})
			s, open := gated(t, "innocent")
			innocent := f.start(t, s)
			innocent.reaches(t, "running")
			assertCode(t, f.run(t, spec{shell: program + how}), code, "which its memory limit does not count")
			open()
			assertOK(t, innocent.result(t))
		})
	}
}
