package operator

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/freeport"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestOperator looks at queues and workers, drains and kills, over a restart of the scheduler, and
// replays what was recorded.
func TestOperator(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.ShareFolder)
	listen, record := freeport.Address(f.T), filepath.Join(f.Dir, "record")
	serve := func() *programs.Process {
		p, _ := f.Scheduler("--data", filepath.Join(f.Dir, "data"), "--listen", listen, "--record", record)
		return p
	}
	server := serve()
	worker := f.With("FORERUNNER_REPORT_WIDTH=0").Worker("worker", listen, listen, "--slots", "1")
	started, release := filepath.Join(f.Dir, "started"), filepath.Join(f.Dir, "release")
	wait := fmt.Sprintf("touch %s; until [ -e %s ]; do sleep 0.05; done; echo done", started, release)
	running := f.Exec(listen, "--", "/bin/sh", "-c", wait)
	f.WaitForFile(started)
	doomed := f.Exec(listen, "--", "/bin/echo", "doomed")
	later := f.Exec(listen, "--", "/bin/echo", "later")
	expect := func(want string, args ...string) {
		f.Helper()
		f.Eventually(fmt.Sprintf("%s shows %q", args, want), func() bool {
			return strings.Contains(f.Verb(listen, args...), want)
		})
	}
	expect("executing", "workers", "list", "name=work*")
	expect(`"state": "EXECUTING"`, "workers", "list", "--json")
	expect("waits: the only worker that takes work is busy", "queue")
	f.Eventually("two operations wait", func() bool {
		return strings.Count(f.Verb(listen, "queue", "operations", "stage=queued"), "\n") == 3
	})
	// The older of the two; the client shows why it ends.
	name := strings.Fields(strings.Split(f.Verb(listen, "queue", "operations", "stage=queued"), "\n")[1])[0]
	if got := f.Verb(listen, "queue", "kill", name, "--reason", "out of paper"); got != "1 operation was killed\n" {
		f.Errorf("kill: %q", got)
	}
	f.Eventually("one of them ends", func() bool {
		for _, p := range []*programs.Process{doomed, later} {
			select {
			case <-p.Exited:
				return strings.Contains(p.Stderr.String(), "out of paper (FailedPrecondition)")
			default:
			}
		}
		return false
	})
	expect("1 worker is drained by name=worker", "workers", "drain", "name=worker")
	expect("draining", "workers", "list")
	f.Write("release", "")
	running.Expect(0, "done\n")
	f.Verb(listen, "workers", "drain", "name=worker", "--wait")
	expect("drained: name=worker", "workers", "list")

	server.Drain()
	again := f.Start("forerunner-scheduler", "replay", "--check", record)
	code, said := again.Wait(), again.Stdout.String()
	if code != 0 || !strings.Contains(said, " events, as recorded\n") || !strings.Contains(said, "drain name=worker") {
		f.Errorf("replay: exit code %d\n%s%s", code, said, &again.Stderr)
	}
	server = serve()
	expect("drained ", "workers", "list")
	expect("out of paper", "operation", name) // only its record is left
	f.With("FORERUNNER_REMOTE="+listen).Start("forerunner", "__complete", "workers", "undrain", "na").Expect(0, "name=\n:6\n")
	f.With("FORERUNNER_REMOTE="+listen).Start("forerunner", "__complete", "workers", "undrain", "name=").Expect(0, "name=worker\n:4\n")
	f.Start("forerunner", "workers", "undrain", "name=nobody", "--remote", listen).Expect(1, "", "no drain", "!rpc error")
	f.Verb(listen, "workers", "undrain", "name=worker")
	killed := 0
	for _, p := range []*programs.Process{doomed, later} {
		if p.Wait() != 0 {
			killed++
		}
	}
	if killed != 1 {
		f.Errorf("%d of two clients failed, one was killed", killed)
	}
	worker.Drain()
	server.Drain()
	f.Start("forerunner", "queue", "--remote", listen).Expect(1, "", "no scheduler answers at "+listen)
}
