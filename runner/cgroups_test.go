package runner

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/sandbox"
)

// TestOwnCgroups: a command is in the root of a cgroup namespace, in a group of its own in each hierarchy that
// the machine has, and sees no other group, not even in mounts of its own.
func TestOwnCgroups(t *testing.T) {
	needUserNamespaces(t)
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) { testOwnCgroups(t, version) })
	}
}

func testOwnCgroups(t *testing.T, version int) {
	slot, limits := newLimitedSlot(t, version)
	l := startLauncher(t, LauncherOptions{Cgroup: slot, Sandbox: &sandbox.Options{}})
	for name, user := range map[string]*sandbox.User{"root": nil, "own": ownIDs, "user": {UID: 70000, GID: 70000}} {
		t.Run(name, func(t *testing.T) {
			look := shell(t, `cut -d: -f3- /proc/self/cgroup | sort -u; find /sys/fs/cgroup/ -mindepth 2 -type d
cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null; cat /proc/$PPID/cgroup | grep -c /slot- || :`)
			look.User = user
			openParents(t, look.Dir)
			if got, want := say(t, l, look), fmt.Sprintf("/\n%d\n0", limits.Memory); got != want {
				t.Errorf("said %q, want %q", got, want)
			}
		})
	}
	nested := shell(t, fmt.Sprintf(`unshare -r -m -C sh -c 'mkdir /tmp/m; for c in memory pids cpu cpuset freezer devices blkio cpuacct name=systemd; do
	mount -t cgroup -o $c none /tmp/m 2>/dev/null && echo mounted && find /tmp/m -mindepth 1 -type d && umount /tmp/m; done
[ %d = 1 ] || mount -t cgroup2 none /tmp/m && echo mounted && find /tmp/m -mindepth 1 -type d'`, version)) // v1 is for where v2 is of no use
	nested.User = ownIDs
	openParents(t, nested.Dir)
	if got := say(t, l, nested); strings.ReplaceAll(got+"\n", "mounted\n", "") != "" || got == "" {
		t.Errorf("in mounts of its own it sees %q", got)
	}
}
