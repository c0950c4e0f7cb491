package sandbox_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// TestShownFileIsReplaced renames another file to the name of one that is shown: commands see the
// old one where the file is named, and the new one where its folder is.
func TestShownFileIsReplaced(t *testing.T) {
	dir, err := os.MkdirTemp("/var/lib", "sandbox-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	file, next := filepath.Join(dir, "file"), filepath.Join(dir, "next")
	if err := errors.Join(os.Chmod(dir, 0o755), os.WriteFile(file, []byte("old"), 0o644), os.WriteFile(next, []byte("new"), 0o644)); err != nil {
		t.Fatal(err)
	}
	named := launchertest.Start(t, runner.LauncherOptions{Sandbox: &sandbox.Options{Show: []string{file}}})
	below := launchertest.Start(t, runner.LauncherOptions{Sandbox: &sandbox.Options{Show: []string{dir}}})
	if err := os.Rename(next, file); err != nil {
		t.Fatal(err)
	}
	for want, l := range map[string]*runner.Launcher{"old": named, "new": below} {
		if got := launchertest.Say(t, l, launchertest.Command(t, "cat", file)); got != want {
			t.Errorf("a command sees %q, want %q", got, want)
		}
	}
}
