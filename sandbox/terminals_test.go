package sandbox_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// hoardTerminals mounts terminals of its own, and takes all that it gets.
func hoardTerminals([]string) error {
	if os.Getenv(insideVar) == "" {
		said, err := inNamespaces(unix.CLONE_NEWNS, "terminals")
		if err == nil && strings.TrimSpace(said) != "done" {
			err = errors.New(said)
		}
		return err
	}
	if err := unix.Mount("own", "/dev/pts", "devpts", 0, "newinstance,ptmxmode=0666"); err != nil {
		return err
	}
	got := 0
	for ; got < 1<<16; got++ {
		if _, err := unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0); err != nil {
			break
		}
	}
	if got == 0 {
		return fmt.Errorf("there are none")
	}
	return hold()
}

// TestHoardOfTerminals: while a command has all terminals of the machine that are not reserved,
// others have theirs.
func TestHoardOfTerminals(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	cmd := abuse(t, "hoard terminals")
	cmd.User = launchertest.OwnIDs
	launchertest.OpenParents(t, cmd.Dir)
	l := launchertest.Sandboxed(t, nil)
	full := launchertest.Complete(t, l, cmd)
	ended := make(chan error, 1)
	go func() {
		r, err := l.Run(t.Context(), full)
		if err == nil && r.ExitCode != 0 {
			err = fmt.Errorf("it ended with %+v", r)
		}
		ended <- err
	}()
	launchertest.Eventually(t, "the command has taken all", func() bool {
		_, err := os.Stat(filepath.Join(cmd.Dir, "taken"))
		return err == nil
	})
	other := launchertest.Shell(t, "script -qec tty /dev/null </dev/null >said && tr -d '\\r' <said")
	other.User = launchertest.OwnIDs
	launchertest.OpenParents(t, other.Dir)
	got := launchertest.Say(t, launchertest.Sandboxed(t, nil), other)
	if err := os.WriteFile(filepath.Join(cmd.Dir, "enough"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got != "/dev/pts/0" {
		t.Errorf("another command's terminal is %q", got)
	}
}

// TestTerminals: programs get terminals, also in namespaces of users, and as many as the options
// say.
func TestTerminals(t *testing.T) {
	const script = "script -qec 'tty && echo x >/dev/tty' /dev/null </dev/null >said && tr -d '\\r' <said"
	l := launchertest.Start(t, runner.LauncherOptions{Sandbox: &sandbox.Options{MostTerminals: 3}})
	for name, user := range map[string]*sandbox.User{"root": nil, "own": launchertest.OwnIDs, "user": {UID: 70000, GID: 70000}} {
		for how, wrap := range map[string][]string{
			"plain": nil, "in a namespace": {"unshare", "-r"}, "as another user there": {"unshare", "--map-user=1000", "--map-group=1000"},
			"with an own instance": {"unshare", "-r", "-m", "/bin/sh", "-c", `mount -t devpts -o newinstance,ptmxmode=0666 x /dev/pts && exec "$@"`, "sh"},
		} {
			cmd := launchertest.Command(t, append(wrap, "/bin/sh", "-c", script)...)
			cmd.User = user
			launchertest.OpenParents(t, cmd.Dir)
			if got := launchertest.Say(t, l, cmd); got != "/dev/pts/0\nx" {
				t.Errorf("%s, %s: got %q", name, how, got)
			}
		}
	}
	cmd := abuse(t, "count terminals")
	if got := launchertest.Say(t, l, cmd); got != "got 3" {
		t.Errorf("of three: %s", got)
	}
}

// countTerminals takes all of its launcher's.
func countTerminals([]string) error {
	for got := 0; ; got++ {
		if _, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0); err != nil {
			return fmt.Errorf("got %d", got)
		}
	}
}
