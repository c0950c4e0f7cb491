package sandbox_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// TestOwnCgroups: a command is in the root of a cgroup namespace, in a group of its own in each
// hierarchy that the machine has, and sees no other group, not even in mounts of its own.
func TestOwnCgroups(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) { testOwnCgroups(t, version) })
	}
}

func testOwnCgroups(t *testing.T, version int) {
	slot, limits := launchertest.LimitedSlot(t, version)
	l := launchertest.Start(t, runner.LauncherOptions{Cgroup: slot, Sandbox: &sandbox.Options{}})
	for name, user := range map[string]*sandbox.User{"root": nil, "own": launchertest.OwnIDs, "user": {UID: 70000, GID: 70000}} {
		t.Run(name, func(t *testing.T) {
			look := launchertest.Shell(t, `cut -d: -f3- /proc/self/cgroup | sort -u; find /sys/fs/cgroup/ -mindepth 2 -type d
cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; cat /proc/$PPID/cgroup | grep -c /slot- || :`)
			look.User = user
			launchertest.OpenParents(t, look.Dir)
			if got, want := launchertest.Say(t, l, look), fmt.Sprintf("/\n%d\n0", limits.Memory); got != want {
				t.Errorf("said %q, want %q", got, want)
			}
		})
	}
	nested := launchertest.Shell(t, fmt.Sprintf(`unshare -r -m -C sh -c 'mkdir /tmp/m; for c in memory pids cpu cpuset freezer devices blkio cpuacct name=systemd; do
	mount -t cgroup -o $c none /tmp/m 2>/dev/null && echo mounted && find /tmp/m -mindepth 1 -type d && umount /tmp/m; done
[ %d = 1 ] || mount -t cgroup2 none /tmp/m && echo mounted && find /tmp/m -mindepth 1 -type d'`, version)) // v1 is for where v2 is of no use
	nested.User = launchertest.OwnIDs
	launchertest.OpenParents(t, nested.Dir)
	if got := launchertest.Say(t, l, nested); strings.ReplaceAll(got+"\n", "mounted\n", "") != "" || got == "" {
		t.Errorf("in mounts of its own it sees %q", got)
	}
}
