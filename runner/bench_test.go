package runner_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/sandbox"
)

// BenchmarkRun is a whole Run of /bin/true with both output files; "bare" is only the
// fork, exec and wait that nobody can do without. launcher-µs/op is the CPU time of the launcher,
// command-µs/op that of the command: both mean something also on a machine that is busy.
func BenchmarkRun(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{Env: []string{}})
			if err != nil {
				b.Fatal(err)
			}
			if _, err := p.Wait(); err != nil {
				b.Fatal(err)
			}
		}
	})
	for _, c := range []struct {
		name      string
		group     int // cgroup version; -1 is no group
		sandbox   bool
		noNetwork bool
		user      *sandbox.User
	}{
		{"no group", -1, false, false, nil},
		{"v2", 2, false, false, nil},
		{"v1", 1, false, false, nil},
		{"sandbox", -1, true, false, nil},
		{"sandbox v2", 2, true, false, nil},
		{"sandbox v2 no network", 2, true, true, nil},
		{"sandbox v2 user", 2, true, false, &sandbox.User{UID: 70000, GID: 70000}},
		{"sandbox v2 own", 2, true, false, launchertest.OwnIDs},
		{"sandbox v2 own no network", 2, true, true, launchertest.OwnIDs},
	} {
		b.Run(c.name, func(b *testing.B) {
			var slot *cgroup.Slot
			if c.group >= 0 {
				slot = launchertest.Slot(b, c.group)
			}
			o := runner.LauncherOptions{Cgroup: slot}
			if c.sandbox {
				o.Sandbox = &sandbox.Options{}
			}
			l := launchertest.Start(b, o)
			dir := b.TempDir()
			cmd := runner.Command{
				Args: []string{"/bin/true"}, Dir: dir, Policy: sandbox.Policy{NoNetwork: c.noNetwork, User: c.user},
				Stdout: filepath.Join(dir, "out"), Stderr: filepath.Join(dir, "err"),
			}
			cmd = launchertest.Complete(b, l, cmd)
			began := cpuTimes(b, l.Pid())
			for b.Loop() {
				r, err := l.Run(b.Context(), cmd)
				if err != nil || r.Cause != runner.Exited || r.ExitCode != 0 {
					b.Fatalf("%+v, %v", r, err)
				}
			}
			ended := cpuTimes(b, l.Pid())
			for i, unit := range []string{"launcher-µs/op", "command-µs/op"} {
				b.ReportMetric(float64((ended[i]-began[i]).Microseconds())/float64(b.N), unit)
			}
		})
	}
}

// cpuTimes returns the CPU time of a process, and of its children that it has waited for.
func cpuTimes(b *testing.B, pid int) [2]time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	const tick = 10 * time.Millisecond                                      // USER_HZ
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')'):])) // proc_pid_stat(5), from the second
	var times [2]time.Duration
	for i := range times {
		for _, f := range fields[12+2*i:][:2] { // user, system
			n, err := strconv.Atoi(f)
			if err != nil {
				b.Fatal(err)
			}
			times[i] += time.Duration(n) * tick
		}
	}
	return times
}
