package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/forerunner-build/forerunner/scheduler"
)

// verb runs a verb of an operator and returns what it prints.
func (f *farmTest) verb(address string, args ...string) string {
	f.Helper()
	p := f.start(append(append([]string{"forerunner"}, args...), "--remote", address)...)
	if code := p.wait(); code != 0 {
		f.Fatalf("%s: exit code %d\n%s", args, code, &p.stderr)
	}
	return p.stdout.String()
}

// testOperator looks at queues and workers, drains and kills, over a restart of the scheduler, and
// replays what was recorded.
func testOperator(f *farmTest) {
	listen, record := freeAddress(f.T), filepath.Join(f.dir, "record")
	serve := func() *process {
		p, _ := f.scheduler("--data", filepath.Join(f.dir, "data"), "--listen", listen, "--record", record)
		return p
	}
	server := serve()
	worker := f.worker("worker", listen, listen, "--slots", "1", "--report-width", "0")
	started, release := filepath.Join(f.dir, "started"), filepath.Join(f.dir, "release")
	wait := fmt.Sprintf("touch %s; until [ -e %s ]; do sleep 0.05; done; echo done", started, release)
	running := f.execRemote(listen, "--", "/bin/sh", "-c", wait)
	f.waitForFile(started)
	doomed := f.execRemote(listen, "--", "/bin/echo", "doomed")
	later := f.execRemote(listen, "--", "/bin/echo", "later")
	expect := func(want string, args ...string) {
		f.Helper()
		f.eventually(fmt.Sprintf("%s shows %q", args, want), func() bool {
			return strings.Contains(f.verb(listen, args...), want)
		})
	}
	expect("executing", "workers", "list", "name=work*")
	expect(`"state": "EXECUTING"`, "workers", "list", "--json")
	expect("waits: all 1 workers that take work are busy", "queue")
	f.eventually("two operations wait", func() bool {
		return strings.Count(f.verb(listen, "queue", "operations", "stage=queued"), "\n") == 3
	})
	// The older of the two; the client shows why it ends.
	name := strings.Fields(strings.Split(f.verb(listen, "queue", "operations", "stage=queued"), "\n")[1])[0]
	if got := f.verb(listen, "queue", "kill", name, "--reason", "out of paper"); got != "1 operations were killed\n" {
		f.Errorf("kill: %q", got)
	}
	f.eventually("one of them ends", func() bool {
		for _, p := range []*process{doomed, later} {
			select {
			case <-p.exited:
				return strings.Contains(p.stderr.String(), "out of paper (FailedPrecondition)")
			default:
			}
		}
		return false
	})
	expect("1 workers are drained by name=worker", "workers", "drain", "name=worker")
	expect("draining", "workers", "list")
	f.write("release", "")
	running.expect(0, "done\n")
	f.verb(listen, "workers", "drain", "name=worker", "--wait")
	expect("drained: name=worker", "workers", "list")

	server.drain()
	replayRecord(f, record)
	server = serve()
	expect("drained ", "workers", "list")
	f.start("forerunner", "workers", "undrain", "name=nobody", "--remote", listen).expect(1, "", "no drain", "!rpc error")
	f.verb(listen, "workers", "undrain", "name=worker")
	killed := 0
	for _, p := range []*process{doomed, later} {
		if p.wait() != 0 {
			killed++
		}
	}
	if killed != 1 {
		f.Errorf("%d of two clients failed, one was killed", killed)
	}
	worker.drain()
	server.drain()
	f.start("forerunner", "queue", "--remote", listen).expect(1, "", "no scheduler answers at "+listen)
}

// replayRecord checks that a recording leads to the state in which its scheduler ended.
func replayRecord(f *farmTest, name string) {
	f.Helper()
	file, err := os.Open(name)
	if err != nil {
		f.Fatal(err)
	}
	defer file.Close()
	r, err := scheduler.Replay(file)
	if err != nil {
		f.Fatal(err)
	}
	if got := r.State.Dump(); got != r.Recorded || r.Events < 10 || !strings.Contains(got, "drain name=worker") {
		f.Errorf("%d events, replayed:\n%s\nrecorded:\n%s", r.Events, got, r.Recorded)
	}
	if info, err := file.Stat(); err == nil {
		f.Logf("%d events took %d bytes", r.Events, info.Size())
	}
}
