package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

func TestMain(m *testing.M) { launchertest.Main(m) }

func start(t *testing.T) *runner.Launcher {
	t.Helper()
	l, err := runner.StartLauncher(t.Context(), runner.LauncherOptions{Sandbox: &sandbox.Options{}})
	if errors.Is(err, sandbox.ErrUnavailable) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return l
}

// say runs a script and returns what it prints.
func say(t *testing.T, l *runner.Launcher, script string) string {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "stdout")
	r, err := l.Run(t.Context(), runner.Command{
		Args: []string{"/bin/sh", "-c", script}, Dir: dir, Stdout: out, Folders: sandbox.Folders{Root: dir, TempDir: t.TempDir()},
	})
	if err != nil || r.Cause != runner.Exited || r.ExitCode != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(string(text), "\n")
}

// TestViewIsAList: of the machine's top folders and /etc a command sees what is listed, and no more.
func TestViewIsAList(t *testing.T) {
	l := start(t)
	top := strings.Fields(say(t, l, "ls /"))
	for _, name := range top {
		known := name == "etc" || name == "var" || strings.Contains(strings.Join(append(sandbox.DefaultShow, sandbox.OwnFolders...), " ")+" ", name)
		if !known {
			t.Errorf("/%s is shown", name)
		}
	}
	for _, name := range strings.Fields(say(t, l, "ls -A /etc")) {
		listed := sandbox.OwnEtc[name] != "" || name == "resolv.conf"
		for _, pattern := range sandbox.ShownInEtc {
			first, _, _ := strings.Cut(pattern, "/")
			if ok, _ := filepath.Match(first, name); ok {
				listed = true
			}
		}
		if !listed {
			t.Errorf("/etc/%s is shown", name)
		}
	}
	if got := say(t, l, "ls /var /sys /sys/fs /sys/devices /var/tmp /run /home"); strings.Contains(got, "class") || strings.Contains(got, "lib") {
		t.Errorf("shown: %s", got)
	}
	if got := say(t, l, "cut -d: -f1 /etc/passwd | tr '\\n' ' '"); got != "root nobody " {
		t.Errorf("users %q", got)
	}
}
