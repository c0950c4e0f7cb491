package worker

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/watch"
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
		"netlink":             {false, codes.FailedPrecondition},
		"netlink-of-a-thread": {false, codes.FailedPrecondition},
		"netlink of all":      {true, codes.Unavailable},
		"locks":               {false, codes.FailedPrecondition},
		"locks-of-files":      {false, codes.FailedPrecondition},
		"locks-of-mapped":     {false, codes.Unavailable}, // no process has these files open
		"mounts":              {false, codes.FailedPrecondition},
		"hidden-mounts":       {false, codes.FailedPrecondition},
		"copies-of-mounts":    {false, codes.FailedPrecondition},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
				slot: launchertest.Slot(t, 0), sandbox: &sandbox.Options{}, own: true,
				change: func(o *Options) { o.Isolation.Sandbox.NoNetwork = !c.network },
			})
			s := spec{shell: program + strings.TrimSuffix(name, " of all")}
			r := f.run(t, s)
			assertCode(t, r, c.code, "which its memory limit does not count")
			if c.code == codes.FailedPrecondition {
				assertCode(t, f.run(t, s), c.code, "not run again for")
			}
			assertOK(t, f.run(t, spec{shell: "true"}))
		})
	}
}

// TestHiddenFileSystems: an action with file systems that no mounts show is stopped, and does not run
// again where it is certain that it has them: then the one beside it goes on. Otherwise nobody is
// blamed, and both run again elsewhere.
func TestHiddenFileSystems(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	program := compiled(t, "testdata/hidden.c", "-pthread")
	for how, isCertain := range map[string]bool{
		"behind-chroot":       true,
		"of-bound-namespaces": true,
		"opened":              true,
		"of-long-paths":       true,
		"behind-deep-paths":   true,
		"mapped":              true,
		"mapped-by-a-thread":  true,
		"of-open-tables":      false,
		"detached":            false,
		"on-the-way":          false,
		"of-bound-sockets":    false,
		"below-an-overlay":    false,
	} {
		t.Run(how, func(t *testing.T) {
			f := newFarmWith(t, vfs.Options{Method: vfs.FUSE}, nil, farmOptions{
				slots: 2, sandbox: &sandbox.Options{Show: []string{gates(t)}}, own: true,
			})
			s, open := gated(t, "innocent")
			innocent := f.start(t, s)
			innocent.reaches(t, "running")
			owner := f.start(t, spec{shell: program + how})
			if !isCertain {
				assertCode(t, owner.result(t), codes.Unavailable, "or another one that ran beside it")
				assertCode(t, innocent.result(t), codes.Unavailable, "or another one that ran beside it")
			} else {
				assertCode(t, owner.result(t), codes.FailedPrecondition, "which its memory limit does not count")
				open()
				assertOK(t, innocent.result(t))
			}
			if n := f.worker.refusals.count(); n > 0 != isCertain {
				t.Errorf("%d actions do not run again", n)
			}
			assertOK(t, f.run(t, spec{shell: "true"}))
		})
	}
}

// count is how many there are.
func (e *refusals) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.until.Len()
}

// TestResultBesideOveruse: an action whose command ends by itself keeps its result, whatever there is
// too much of at the time.
func TestResultBesideOveruse(t *testing.T) {
	overuse := &watch.Overuse{What: "objects"}
	for _, c := range []struct {
		found *watch.Overuse
		cause runner.Cause
		want  bool
	}{
		{nil, runner.Cancelled, false},
		{overuse, runner.Cancelled, true},
		{overuse, runner.Exited, false},
		{overuse, runner.TimedOut, false},
	} {
		if got := wasStopped(c.found, runner.Result{Cause: c.cause}); got != c.want {
			t.Errorf("%+v: stopped for that: %v", c, got)
		}
	}
}
