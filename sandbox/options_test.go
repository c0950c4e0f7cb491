package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestUnavailable: a machine has no sandbox only if its kernel refuses one. After other faults
// commands must not run without.
func TestUnavailable(t *testing.T) {
	for err, want := range map[error]bool{
		fmt.Errorf("mount: %w", unix.EPERM):                        true,
		fmt.Errorf("no sandbox here: %w", ErrUnavailable):          true,
		fmt.Errorf("open: %w", unix.EMFILE):                        false,
		fmt.Errorf("no more mounts: %w", unix.ENOSPC):              false,
		fmt.Errorf("%w: show /missing: %w", ErrView, unix.ENOENT):  false,
		fmt.Errorf("%w: hide /not/mine: %w", ErrView, unix.EACCES): false,
	} {
		got := Unavailable(err)
		if errors.Is(got, ErrUnavailable) != want || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestNoneAllowed: a machine has no sandbox if it allows none of a kind of namespaces, not if it
// allows few.
func TestNoneAllowed(t *testing.T) {
	for _, c := range []struct {
		limits map[string]string // by kind
		want   bool
	}{
		{nil, false}, // a kernel without limits
		{map[string]string{"mnt": "96365\n", "pid": "96365\n", "uts": "96365\n"}, false},
		{map[string]string{"mnt": "1\n", "pid": "10\n", "uts": "100\n", "user": "0\n"}, false},
		{map[string]string{"mnt": "0\n"}, true},
		{map[string]string{"mnt": "1\n", "pid": "0\n"}, true},
		{map[string]string{"uts": "0\n"}, true},
	} {
		proc := t.TempDir()
		for kind, text := range c.limits {
			file := filepath.Join(proc, namespaceLimit(kind))
			if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if got := noneAllowed(proc); got != c.want {
			t.Errorf("%v: %t", c.limits, got)
		}
	}
}
