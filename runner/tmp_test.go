package runner

import (
	"os"
	"path/filepath"
	"testing"
)

// TestTempDirIsTmp lets two commands leave a file in /tmp: each finds it empty, the
// file lands in its own folder, and the input root is visible though it is below /tmp.
func TestTempDirIsTmp(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("mount namespaces need root")
		}
		t.Skip("mount namespaces need root")
	}
	l := newLauncher(t, nil)
	root, err := os.MkdirTemp("/tmp", "runner-root-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.WriteFile(filepath.Join(root, "input"), []byte("seen"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		tmp, out := t.TempDir(), filepath.Join(t.TempDir(), "stdout")
		r, err := l.Run(t.Context(), Command{
			Args: []string{"/bin/sh", "-c", `test ! -e /tmp/left && : >/tmp/left && cat input "$PWD/input" && pwd`},
			Dir:  root, Root: root, TempDir: tmp, Stdout: out,
		})
		if err != nil || r.Cause != Exited || r.ExitCode != 0 {
			t.Fatalf("Run: %+v, %v", r, err)
		}
		got, err := os.ReadFile(out)
		if err != nil || string(got) != "seenseen"+root+"\n" {
			t.Errorf("stdout = %q, %v", got, err)
		}
		if _, err := os.Stat(filepath.Join(tmp, "left")); err != nil {
			t.Errorf("what the command left in /tmp: %v", err)
		}
	}
	if _, err := os.Stat("/tmp/left"); err == nil {
		t.Error("the command wrote to the /tmp of all")
	}
}
