package sandbox_test

import (
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// TestCoreDumps: a command keeps the one limit with which the kernel starts no handler of core
// dumps, whatever it sets, unless its policy allows others.
func TestCoreDumps(t *testing.T) {
	const try = "grep core /proc/self/limits; for n in 0 1048576 unlimited; do ulimit -c $n || echo refused; grep core /proc/self/limits; done"
	var mine unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &mine); err != nil {
		t.Fatal(err)
	}
	was := "unlimited"
	if mine.Cur != unix.RLIM_INFINITY {
		was = strconv.FormatUint(mine.Cur, 10)
	}
	kept := []string{"1", "1", "1", "1"}
	for name, user := range map[string]*sandbox.User{"root": nil, "own": launchertest.OwnIDs, "user": {UID: 70000, GID: 70000}} {
		t.Run(name, func(t *testing.T) {
			l := launchertest.Sandboxed(t, nil)
			for _, c := range []struct {
				allow []string
				want  []string // soft limits
			}{{nil, kept}, {[]string{"core_dumps"}, []string{was, "0"}}, {nil, kept}} {
				cmd := launchertest.Shell(t, try)
				cmd.User, cmd.Allow = user, c.allow
				launchertest.OpenParents(t, cmd.Dir)
				said := launchertest.Say(t, l, cmd)
				if strings.Contains(said, "refused") && c.allow == nil {
					t.Errorf("setting it is an error: %q", said)
				}
				var got []string
				for line := range strings.Lines(said) {
					if f := strings.Fields(line); len(f) > 4 {
						got = append(got, f[4])
					}
				}
				if len(got) < len(c.want) || strings.Join(got[:len(c.want)], " ") != strings.Join(c.want, " ") {
					t.Errorf("allowing %v: limits %q, want %q", c.allow, got, c.want)
				}
			}
		})
	}
}
