package sandbox_test

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

func TestRootOfAUserNamespace(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	for _, version := range []int{1, 2} {
		l := launchertest.Sandboxed(t, launchertest.Slot(t, version))
		cmd := launchertest.Shell(t, `id -u; id -g; id -G; touch mine; chown 1000:1001 mine; stat -c %u:%g mine; ls -nd /usr | cut -d' ' -f3
cat /proc/self/uid_map | tr -s ' '; cat /etc/shadow 2>/dev/null || echo denied; grep NoNewPrivs /proc/self/status | cut -f2`)
		cmd.User = launchertest.OwnIDs
		launchertest.OpenParents(t, cmd.Dir)
		want := "0\n0\n0\n1000:1001\n65534\n 0 0 65536\ndenied\n1"
		if got := launchertest.Say(t, l, cmd); got != want {
			t.Errorf("said %q, want %q", got, want)
		}
		// The namespace came with the command; no launcher has to make it.
		of := launchertest.Command(t, "/bin/readlink", "/proc/self/ns/user")
		of.User = launchertest.OwnIDs
		of = launchertest.Complete(t, l, of)
		launchertest.OpenParents(t, of.Dir)
		if got, want := launchertest.Say(t, l, of), namespaceName(t, of.Namespace); got != want {
			t.Errorf("is in %s, want %s", got, want)
		}
		// A typical use inside of actions: a namespace with mounts and a /proc.
		nested := launchertest.Shell(t, `unshare -r -m -p -f --mount-proc sh -c 'mount -t tmpfs x /tmp && touch /tmp/x && ls /tmp && echo $$ && id -u'`)
		nested.User = launchertest.OwnIDs
		launchertest.OpenParents(t, nested.Dir)
		if got := launchertest.Say(t, l, nested); strings.TrimSpace(got) != "x\n1\n0" {
			t.Errorf("nested: %q", got)
		}
	}
}

// namespaceName returns the name of a namespace in links of /proc.
func namespaceName(t *testing.T, f *os.File) string {
	t.Helper()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("user:[%d]", info.Sys().(*syscall.Stat_t).Ino)
}

// nsGetOwnerUID asks for the user who made a user namespace (ioctl_ns(2)).
const nsGetOwnerUID = 0xb704

// TestOwnerOfAUserNamespace: resources that a namespace uses count for its own user, not for root
// and so for everyone.
func TestOwnerOfAUserNamespace(t *testing.T) {
	u := launchertest.OwnIDs
	f, err := sandbox.UserNamespace(u)
	if err != nil {
		if os.Getenv("CI") != "" && os.Geteuid() == 0 {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	defer func() { _ = f.Close() }()
	if owner, err := unix.IoctlGetUint32(int(f.Fd()), nsGetOwnerUID); err != nil || owner != u.UID {
		t.Errorf("made by user %d, want %d; %v", owner, u.UID, err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if unix.Geteuid() != 0 {
		t.Errorf("a thread is user %d afterwards", unix.Geteuid())
	}
}
