package runner

import (
	"os"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/sandbox"
)

// ownIDs are what commands have by default: root of a user namespace, and nobody outside.
var ownIDs = &sandbox.User{UID: 1900000000, GID: 1900000000, IDs: 65536}

// needUserNamespaces skips a test where root cannot make them.
func needUserNamespaces(t testing.TB) {
	t.Helper()
	f, err := sandbox.UserNamespace(ownIDs)
	if err == nil {
		_ = f.Close()
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skip(err)
}

func TestRootOfAUserNamespace(t *testing.T) {
	needUserNamespaces(t)
	for _, version := range []int{1, 2} {
		l := newSandbox(t, newSlot(t, version))
		cmd := shell(t, `id -u; id -g; id -G; touch mine; chown 1000:1001 mine; stat -c %u:%g mine; ls -nd /usr | cut -d' ' -f3
cat /proc/self/uid_map | tr -s ' '; cat /etc/shadow 2>/dev/null || echo denied; grep NoNewPrivs /proc/self/status | cut -f2`)
		cmd.User = ownIDs
		openParents(t, cmd.Dir)
		want := "0\n0\n0\n1000:1001\n65534\n 0 1900000000 65536\ndenied\n1"
		if got := say(t, l, cmd); got != want {
			t.Errorf("said %q, want %q", got, want)
		}
		// What people do inside of actions: a namespace in it, with mounts and a /proc.
		nested := shell(t, `unshare -r -m -p -f --mount-proc sh -c 'mount -t tmpfs x /tmp && touch /tmp/x && ls /tmp && echo $$ && id -u'`)
		nested.User = ownIDs
		openParents(t, nested.Dir)
		if got := say(t, l, nested); strings.TrimSpace(got) != "x\n1\n0" {
			t.Errorf("nested: %q", got)
		}
	}
}
