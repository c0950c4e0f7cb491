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
