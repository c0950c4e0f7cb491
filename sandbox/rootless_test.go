package sandbox_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

// rootlessVar makes this test binary a worker without rights, in the folder that it names, whose
// commands try all attacks. It prints those that work.
const rootlessVar = "SANDBOX_TEST_ROOTLESS"

func rootlessMain(dir string) {
	if err := runAttacks(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, "rootless:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func runAttacks(ctx context.Context, dir string) error {
	l, err := runner.StartLauncher(ctx, runner.LauncherOptions{})
	if err != nil {
		return err
	}
	for _, attack := range slices.Sorted(maps.Keys(attacks)) {
		r, err := l.Run(ctx, runner.Command{
			Args: []string{filepath.Join(dir, "tool"), filepath.Join(dir, "worker.key")}, Dir: dir,
			Env: []string{os.Getenv("MARK"), abuseVar + "=" + attack, attackVar + "=1", "PATH=" + runner.DefaultPath},
		})
		if err != nil {
			return err
		}
		if r.ExitCode == 0 {
			fmt.Println(attack)
		}
	}
	return l.Close(ctx)
}

// rootlessWorks are the attacks that a worker without rights cannot prevent, as
// docs/EXECUTION.md#sandbox says. All but the first depend on the machine.
var rootlessWorks = []string{
	"read", "add a key", "bpf", "contexts of asynchronous input and output", "interfaces of the machine", "io_uring", "list the homes", "listen to devices", "old ABI", "perf",
	"read the machine's id", "read the session keyring", "userfaultfd", "vsock", "vsock by a long argument",
	"have a key made", "join a keyring by name", "listen to audit", "open by handle", "paste into a console", "reach a rare family of sockets", "speak to whatever driver",
	"take terminals", "watch a file system", "make a network namespace", "fill neighbours",
	"make a context of a mount",
}

// TestAttacksRootless: a command of a worker that is not root, and so has no sandbox, can do what
// the worker's user can, and nothing to the machine, its cgroups, or others.
func TestAttacksRootless(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("becomes another user, as root can")
	}
	dir, err := os.MkdirTemp("/var/tmp", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	const nobody = 65534
	for name, content := range map[string][]byte{"tool": binary, "worker.key": []byte("secret")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, name), nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(filepath.Join(dir, "tool"))
	c.Env = []string{rootlessVar + "=" + dir, "MARK=" + launchertest.Mark(), "GORACE=" + os.Getenv("GORACE")}
	c.Stderr = os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	worked := strings.Split(strings.TrimSpace(string(out)), "\n")
	if !slices.Contains(worked, "read") {
		t.Error("a command cannot read its worker's key: docs/EXECUTION.md#sandbox is wrong, or this tests nothing")
	}
	for _, attack := range worked {
		if !slices.Contains(rootlessWorks, attack) {
			t.Errorf("%q works", attack)
		}
	}
	t.Logf("what works here: %q", worked)
}
