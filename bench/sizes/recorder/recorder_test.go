package recorder

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/bench/sizes/recording"
	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
)

func TestMain(m *testing.M) {
	runner.MainIfLauncher()
	os.Exit(m.Run())
}

// TestWorksAreDistinct checks that each work has a name of its own, and that rounds differ if a work
// has files.
func TestWorksAreDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range works() {
		name := w.kind + " " + w.target
		if seen[name] || strings.ContainsAny(name, ",\n\"") {
			t.Errorf("%s: twice, or not fit for CSV", name)
		}
		seen[name] = true
		changes := strings.Contains(w.script, "$ROUND") || strings.HasPrefix(w.kind, "ShTest") || w.kind == "Minify" || w.kind == "PyCompile"
		if !changes && (w.files == nil || reflect.DeepEqual(w.files(1), w.files(2))) {
			t.Errorf("%s does not change from round to round", name)
		}
	}
}

// TestFill has results that end in all ways.
func TestFill(t *testing.T) {
	r := &recorder{Options: Options{Speed: 0.125}}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	result := func(exit int, used *cgroup.Usage) runner.Result {
		return runner.Result{Cause: runner.Exited, ExitCode: exit, Group: used, Started: start, Ended: start.Add(16 * time.Second)}
	}
	used := cgroup.Usage{
		User: time.Second, System: time.Second, Throttled: time.Minute, MemorySome: 8 * time.Second, MemoryPeak: 3 << 20,
	}
	killed := used
	killed.OOMKills = 1
	for of, test := range map[string]struct {
		cpus   int
		result runner.Result
		want   recording.End // empty: an error
	}{
		"done":                         {8, result(0, &used), recording.Done},
		"killed":                       {1, result(1, &killed), recording.Killed},
		"a process killed":             {1, result(0, &killed), recording.Killed},
		"failed":                       {4, result(1, &used), recording.Failed},
		"failed on the largest":        {8, result(1, &used), ""},
		"not measured":                 {8, result(0, nil), ""},
		"timed out":                    {1, runner.Result{Cause: runner.TimedOut, Group: &used}, ""},
		"out of memory on the largest": {8, result(1, &killed), ""},
	} {
		got, err := r.fill(recording.Run{CPUs: test.cpus}, test.result)
		if (err != nil) != (test.want == "") || err == nil && got.End != test.want {
			t.Errorf("%s: %+v, %v", of, got, err)
			continue
		}
		want := recording.Run{
			CPUs: test.cpus, End: test.want, Seconds: 2, CPUSeconds: 2, ThrottledSeconds: 2, StalledSeconds: 0.5, PeakMiB: 3,
		}
		if err == nil && got != want {
			t.Errorf("%s: %+v, want %+v", of, got, want)
		}
	}
}

// TestWriteKeepsOthers measures a command again. The others stay, and so does a command of which runs
// are missing.
func TestWriteKeepsOthers(t *testing.T) {
	run := func(target string, round, cpus int, seconds float64) recording.Run {
		return recording.Run{Kind: "k", Target: target, Round: round, CPUs: cpus, MemoryMiB: 1, End: recording.Done, Seconds: seconds}
	}
	rounds := func(target string, seconds float64) (list []recording.Run) {
		for _, cpus := range sizes {
			list = append(list, run(target, 1, cpus, seconds))
		}
		return list
	}
	r := &recorder{Options: Options{Out: filepath.Join(t.TempDir(), "made.csv"), Rounds: 1}}
	old := append(append(rounds("a", 1), rounds("b", 1)...), rounds("c", 1)...)
	if err := r.write(old, append(rounds("a", 2), rounds("b", 2)[1:]...)); err != nil {
		t.Fatal(err)
	}
	got, err := readOld(r.Out)
	if want := append(append(rounds("a", 2), rounds("b", 1)...), rounds("c", 1)...); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if none, err := readOld(r.Out + "x"); none != nil || err != nil {
		t.Errorf("no earlier recording: %v, %v", none, err)
	}
}

// TestThreadsHaveGroups starts processes in a slot and checks that each gets a group of its own, with
// the bandwidth of one CPU, inside a group with that of all.
func TestThreadsHaveGroups(t *testing.T) {
	p, err := cgroup.Open(cgroup.Options{Name: fmt.Sprintf("test-%d", os.Getpid())})
	if err != nil {
		t.Skip(err) // the recorder is for developers; machines without cgroups cannot record
	}
	defer func() { check(t, p.Close()) }()
	slot, err := p.Slot("0")
	check(t, err)
	defer func() { check(t, slot.Close()) }()
	own, err := newThreads(slot, 4, 0.125)
	if err != nil {
		t.Skip(err) // cgroup v2
	}
	var tids []string
	for range 3 {
		cmd := exec.Command("sleep", "1000")
		check(t, cmd.Start())
		defer func() { _, _ = cmd.Process.Wait() }()
		defer func() { check(t, cmd.Process.Kill()) }()
		tids = append(tids, strconv.Itoa(cmd.Process.Pid))
		check(t, os.WriteFile(filepath.Join(own.group, "tasks"), []byte(tids[len(tids)-1]), 0))
	}
	check(t, own.spread())
	count := 0
	for _, group := range own.groups {
		list, err := own.in(group)
		check(t, err)
		if count += len(list); len(list) != 1 {
			t.Errorf("group %s has %q", group, list)
		}
		expectQuota(t, group, "2500")
	}
	if count != len(tids) {
		t.Errorf("%d of %d threads have a group", count, len(tids))
	}
	expectQuota(t, own.group, "10000")
	ctx, stop := context.WithCancel(t.Context())
	stop()
	check(t, own.run(ctx))
}

func expectQuota(t *testing.T, group, want string) {
	t.Helper()
	for file, want := range map[string]string{"cpu.cfs_quota_us": want, "cpu.cfs_period_us": "20000"} {
		text, err := os.ReadFile(filepath.Join(group, file))
		if got := strings.TrimSpace(string(text)); err != nil || got != want {
			t.Errorf("%s of %s is %s, want %s: %v", file, group, got, want, err)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNothingIsLeft: a work that is cancelled leaves no process, and no group.
func TestNothingIsLeft(t *testing.T) {
	p, err := cgroup.Open(cgroup.Options{Name: fmt.Sprintf("test-%d", os.Getpid())})
	if err != nil {
		t.Skip(err) // the recorder is for developers; machines without cgroups cannot record
	}
	defer func() { check(t, p.Close()) }()
	r := &recorder{dir: t.TempDir(), parent: p}
	check(t, os.Mkdir(r.shared(), 0o755))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- r.once(ctx, work{script: `sleep 1000 >/dev/null 2>&1 & echo $! >"$SHARED/part" && mv "$SHARED/part" "$SHARED/pid"; wait`})
	}()
	var pid string
	for pid == "" {
		select {
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(time.Millisecond):
		}
		text, _ := os.ReadFile(filepath.Join(r.shared(), "pid"))
		pid = strings.TrimSpace(string(text))
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("a work succeeds that was cancelled")
	}
	if _, err := os.Stat("/proc/" + pid); err == nil {
		t.Errorf("process %s is left", pid)
	}
	if left, err := filepath.Glob(filepath.Join(p.Dir(), "slot-*")); len(left) > 0 || err != nil {
		t.Errorf("groups %q are left: %v", left, err)
	}
}

// TestSaysWhy: the error of a work that fails has what it printed.
func TestSaysWhy(t *testing.T) {
	p, err := cgroup.Open(cgroup.Options{Name: fmt.Sprintf("test-%d", os.Getpid())})
	if err != nil {
		t.Skip(err) // as above
	}
	defer func() { check(t, p.Close()) }()
	r := &recorder{dir: t.TempDir(), parent: p}
	if err := r.once(t.Context(), work{script: "echo what; echo why >&2; false"}); err == nil || !strings.Contains(err.Error(), "what\nwhy") {
		t.Error(err)
	}
	check(t, r.once(t.Context(), work{script: "true"}))
}
