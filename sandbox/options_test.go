package sandbox

import (
	"errors"
	"fmt"
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
		fmt.Errorf("%w: show /missing: %w", ErrView, unix.ENOENT):  false,
		fmt.Errorf("%w: hide /not/mine: %w", ErrView, unix.EACCES): false,
	} {
		got := Unavailable(err)
		if errors.Is(got, ErrUnavailable) != want || !errors.Is(got, err) {
			t.Errorf("%v: %v", err, got)
		}
	}
}
