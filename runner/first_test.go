package runner_test

import (
	"context"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

// TestCancelledFirstCommand: cancelling the first command of a launcher, at any moment, does not
// affect the next one.
func TestCancelledFirstCommand(t *testing.T) {
	for i := range 12 {
		l := launchertest.Sandboxed(t, launchertest.Slot(t, 0))
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*400*time.Microsecond)
		_, _ = l.Run(ctx, launchertest.Complete(t, l, launchertest.Shell(t, "exit 7")))
		cancel()
		if r, err := l.Run(t.Context(), launchertest.Complete(t, l, launchertest.Shell(t, "exit 3"))); err != nil || r.Cause != runner.Exited || r.ExitCode != 3 {
			t.Errorf("cancelled after %d × 400 µs: the next command ended with %+v, %v", i, r, err)
		}
	}
}
