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

// TestProgramOfTheLauncher has a command that is the machine's root execute the program of its
// launcher, which lies on the machine: it cannot change that.
func TestProgramOfTheLauncher(t *testing.T) {
	l := launchertest.Sandboxed(t, nil)
	cmd := abuse(t, "change its program")
	cmd.Env = append(cmd.Env, attackVar+"=1")
	cmd.Args[0] = "/proc/self/exe"
	if r := launchertest.Run(t, l, cmd); r.ExitCode != 1 {
		t.Errorf("the attack ended with %+v: %s%s", r, launchertest.Read(t, cmd.Stdout), launchertest.Read(t, cmd.Stderr))
	}
}

// changeProgram makes of the program what it is already, by each way that there is.
func changeProgram([]string) error {
	const path = "/proc/self/exe"
	var is unix.Stat_t
	if err := unix.Stat(path, &is); err != nil {
		return err
	}
	var failed []error
	for what, change := range map[string]func() error{
		"mode":      func() error { return unix.Chmod(path, is.Mode&0o7777) },
		"owner":     func() error { return unix.Chown(path, int(is.Uid), int(is.Gid)) },
		"attribute": func() error { return unix.Setxattr(path, "user.forerunner-test", []byte("x"), 0) },
		"times":     func() error { return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{is.Atim, is.Mtim}, 0) },
	} {
		err := change()
		if err == nil {
			fmt.Println(what, "was changed")
			return nil
		}
		failed = append(failed, fmt.Errorf("%s: %w", what, err))
	}
	return errors.Join(failed...)
}

// TestDescriptorsOfTheLauncher searches for open descriptors of the launcher at the moment when a
// command has them too: through a working folder and a program that are links to them.
func TestDescriptorsOfTheLauncher(t *testing.T) {
	launchertest.NeedUserNamespaces(t)
	for _, version := range []int{1, 2} {
		t.Run(fmt.Sprintf("v%d", version), func(t *testing.T) {
			l := launchertest.Sandboxed(t, launchertest.Slot(t, version))
			for fd := 3; fd < 40; fd++ {
				cmd := launchertest.Shell(t, "readlink /proc/self/cwd; ls")
				link := filepath.Join(cmd.Dir, "link")
				if err := os.Symlink(fmt.Sprintf("/proc/self/fd/%d", fd), link); err != nil {
					t.Fatal(err)
				}
				program := launchertest.Command(t, fmt.Sprintf("/proc/self/fd/%d", fd))
				cmd.Root, cmd.Dir = cmd.Dir, link
				for _, c := range []runner.Command{cmd, program} {
					r := launchertest.Run(t, l, c)
					if r.Cause != runner.NotStarted {
						t.Errorf("descriptor %d: %+v: %s", fd, r, launchertest.Read(t, c.Stdout))
					}
				}
			}
		})
	}
}

// TestProgramsOutOfReach: commands that name programs in a folder that they may not enter learn
// nothing about its content.
func TestProgramsOutOfReach(t *testing.T) {
	dir, err := os.MkdirTemp("/usr/local", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := errors.Join(os.Chmod(dir, 0o700), os.WriteFile(filepath.Join(dir, "key"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	said := func(l *runner.Launcher, user *sandbox.User, dir, name string) string {
		direct, byName := launchertest.Command(t, filepath.Join(dir, name)), launchertest.Command(t, name)
		byName.Env = append(byName.Env, "PATH="+dir)
		script := launchertest.Command(t, "./script")
		if err := os.WriteFile(filepath.Join(script.Dir, "script"), []byte("#!"+filepath.Join(dir, name)+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		var all string
		for _, c := range []runner.Command{direct, byName, script} {
			c.User = user
			launchertest.OpenParents(t, c.Dir)
			r := launchertest.Run(t, l, c)
			all += strings.ReplaceAll(r.Err, name, "NAME") + "\n"
		}
		return all
	}
	user := &sandbox.User{UID: 70000, GID: 70000, Groups: []uint32{70001}}
	for name, l := range map[string]*runner.Launcher{"sandbox": launchertest.Sandboxed(t, nil), "plain": launchertest.Plain(t, nil)} {
		for _, user := range []*sandbox.User{user, launchertest.OwnIDs} {
			if name == "plain" && user.IDs > 0 {
				continue
			}
			there, not := said(l, user, dir, "key"), said(l, user, dir, "nil")
			if there != not {
				t.Errorf("%s: of a file that is there they are told\n%sand else\n%s", name, there, not)
			}
		}
		if there := said(l, nil, dir, "key"); !strings.Contains(there, "not executable") {
			t.Errorf("%s: root is told %s", name, there)
		}
	}
}
