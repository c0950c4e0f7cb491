package sandbox_test

import (
	"testing"

	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// TestOutputsByName has commands of each kind of user open their standard output and error by name,
// as scripts do.
func TestOutputsByName(t *testing.T) {
	for name, user := range map[string]*sandbox.User{"root": nil, "own": launchertest.OwnIDs, "user": {UID: 70000, GID: 70000}} {
		t.Run(name, func(t *testing.T) {
			l := launchertest.Sandboxed(t, nil)
			cmd := launchertest.Shell(t, "echo out > /dev/stdout; echo err > /dev/stderr; echo both | tee /dev/stderr")
			cmd.User = user
			launchertest.OpenParents(t, cmd.Dir)
			if r := launchertest.Run(t, l, cmd); r.ExitCode != 0 {
				t.Errorf("it ends with %+v", r)
			}
			if out, err := launchertest.Read(t, cmd.Stdout), launchertest.Read(t, cmd.Stderr); out != "out\nboth\n" || err != "err\nboth\n" {
				t.Errorf("stdout %q, stderr %q", out, err)
			}
		})
	}
}
