package runner_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

// TestStopAtAnyMoment: whenever a command is stopped, nothing of it is left, and the next one is
// neither signalled nor stopped.
func TestStopAtAnyMoment(t *testing.T) {
	scripts := []string{
		"exit 3", "echo out; echo err >&2; exit 3", "sleep 0.001; exit 3", "setsid sleep 1000 & exit 3",
		"trap '' TERM; (sleep 1000 &); exit 3", "sleep 0.002 & sleep 0.001 & wait; exit 3", "kill -STOP $$; exit 3",
	}
	launchertest.EachKind(t, func(t *testing.T, l *runner.Launcher) {
		cmd := launchertest.Complete(t, l, launchertest.Shell(t, ""))
		next := cmd
		next.Args = []string{"/bin/sh", "-c", "trap 'echo signalled' TERM CONT HUP; sleep 0.001; echo out; echo err >&2; exit 5"}
		for range 30 {
			script := scripts[rand.IntN(len(scripts))]
			cmd.Args = []string{"/bin/sh", "-c", script}
			cmd.Grace = time.Duration(1+rand.IntN(3)) * time.Millisecond
			cmd.Timeout = time.Duration(rand.IntN(2)*rand.IntN(3000)) * time.Microsecond
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3000))*time.Microsecond)
			r, err := l.Run(ctx, cmd)
			cancel()
			if err != nil || r.Cause == runner.Exited && r.ExitCode != 3 {
				t.Fatalf("%s: %+v, %v", script, r, err)
			}
			r = launchertest.Run(t, l, next)
			if out, err := launchertest.Read(t, next.Stdout), launchertest.Read(t, next.Stderr); r.Cause != runner.Exited || r.ExitCode != 5 || out != "out\n" || err != "err\n" {
				t.Fatalf("after %s: %+v, %q, %q", script, r, out, err)
			}
		}
		launchertest.AssertNothingLeft(t)
	})
}
