package prefetch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/bench/benchtest"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/vfs"
)

func TestMain(m *testing.M) { launchertest.Main(m) }

// newTinyPrefetch has a farm of its own, and actions that print a few files instead
// of building something.
func newTinyPrefetch(t *testing.T, only ...string) *prefetchBench {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	dir := benchtest.NewDir(t)
	inputs := filepath.Join(dir, "inputs")
	for _, name := range []string{"read/a", "read/b", "unread/c"} {
		benchtest.Check(t, os.MkdirAll(filepath.Dir(filepath.Join(inputs, name)), 0o755))
		benchtest.Check(t, os.WriteFile(filepath.Join(inputs, name), []byte(strings.Repeat(name, 1000)), 0o644))
	}
	f, err := testbed.Start(t.Context(), dir)
	benchtest.Check(t, err)
	t.Cleanup(func() { benchtest.Check(t, f.Close()) })
	in, err := client.Scan(t.Context(), testbed.Function, []client.Mount{{Dir: inputs}}, nil)
	benchtest.Check(t, err)
	benchtest.Check(t, f.Storage.Upload(t.Context(), in.Blobs, nil))
	b := newPrefetchBench(f, &prefetchOptions{Options: report.Options{Runs: 2, Only: only}})
	w := &workload{name: "tiny", slots: 2}
	for _, text := range []string{"one", "two", "three"} {
		w.actions = append(w.actions, catAction(in.Root, "cat read/a read/b >out; echo "+text))
		w.training = append(w.training, catAction(in.Root, "cat read/* >out; echo "+text))
	}
	w.strange = []*testbed.Action{catAction(in.Root, "cat unread/c >out")}
	b.works[workGo], b.works[workCXX] = w, w
	return b
}

func catAction(root digest.Digest, script string) *testbed.Action {
	return &testbed.Action{
		Root:    root,
		Command: testbed.NewCommand([]string{"/bin/sh", "-c", script}, "out", "PATH=/usr/bin:/bin"),
		Who:     &repb.RequestMetadata{ActionMnemonic: "Cat"},
	}
}

// requireFUSE skips where input roots cannot be mounted.
func requireFUSE(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, vfs.ErrUnavailable) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	benchtest.Check(t, err)
}

func TestPrefetchRows(t *testing.T) {
	only := []string{"exact_0ms", "neighbour_50ms", "none_2ms", "all_first_2ms", "coarse_50ms", rowBytes, rowWarmCost, rowMisfit}
	b := newTinyPrefetch(t, only...)
	requireFUSE(t, b.measure(t.Context()))
	var names []string
	for _, r := range b.rows() {
		names = append(names, r.Name)
		if r.Value == nil || *r.Value <= 0 && r.Name != rowWarmCost {
			t.Errorf("row %s has no value: %+v", r.Name, r)
		}
	}
	if want := "exact_0ms neighbour_50ms coarse_50ms none_2ms all_first_2ms bytes_over_used warm_cost misfit_coarse_50ms"; strings.Join(names, " ") != want {
		t.Errorf("rows %q, want %q", names, want)
	}
	// Three actions read two files of 6,000 bytes each; on the worker they are once.
	for _, s := range b.samples[cell{workGo, none, 2}] {
		if s.read != 3*2*6000 || s.fetched < 2*6000 || s.wire < s.fetched {
			t.Errorf("an empty cache: read %v, fetched %v, on the wire %v", s.read, s.fetched, s.wire)
		}
	}
	for _, s := range b.samples[cell{workGo, warm, 2}] {
		if s.read != 3*2*6000 || s.fetched != 0 {
			t.Errorf("a warm cache: read %v, fetched %v", s.read, s.fetched)
		}
	}
	for c, profile := range map[cell]string{
		{workGo, exact, 0}: "exact", {workCXX, coarse, 50}: "coarse", {workGo, none, 2}: "none",
		{workGo, misfit, 50}: "coarse",
	} {
		// Of three at once on two slots the last one may know what the first one did.
		if s := b.samples[c][0]; s.profiles[profile] < 2 {
			t.Errorf("%s: profiles of three actions: %v", c.column, s.profiles)
		}
	}
	if n := len(b.samples[cell{workGo, none, 2}]); n != 2 {
		t.Errorf("%d samples in 2 runs", n)
	}
	if left, err := filepath.Glob(filepath.Join(b.farm.Dir, "*-[0-9]*")); err != nil || len(left) > 0 {
		t.Errorf("left by workers: %v, %v", left, err)
	}
}

// TestPrefetchFailedAction: an action that fails is an error that says why, not a fast run.
func TestPrefetchFailedAction(t *testing.T) {
	b := newTinyPrefetch(t, "none_0ms")
	root := b.works[workGo].actions[0].Root
	b.works[workGo].actions = []*testbed.Action{catAction(root, "cat not-there")}
	err := b.measure(t.Context())
	if errors.Is(err, vfs.ErrUnavailable) {
		requireFUSE(t, err)
	}
	if err == nil || !strings.Contains(err.Error(), "not-there: No such file") {
		t.Errorf("error %v, want what the command said", err)
	}
	if rows := b.rows(); len(rows) != 1 || rows[0].Value != nil {
		t.Errorf("rows %+v of work that failed", rows)
	}
}

// TestRoundTripsDerived: what takes 0.4 s more when each trip takes 40 ms more has ten of them.
func TestRoundTripsDerived(t *testing.T) {
	b := newPrefetchBench(nil, &prefetchOptions{})
	b.works[workGo] = &workload{}
	for _, s := range []float64{1, 9, 1.2} {
		b.samples[cell{workGo, exact, nearMS}] = append(b.samples[cell{workGo, exact, nearMS}], sample{seconds: 9 * s, idle: s})
		b.samples[cell{workGo, exact, farMS}] = append(b.samples[cell{workGo, exact, farMS}], sample{seconds: 7 * s, idle: s + 0.4})
	}
	if r := b.roundTrips(); r.Value == nil || *r.Value < 9.99 || *r.Value > 10.01 {
		t.Errorf("%+v, want 10", r)
	}
}

// TestUnitsDiffer: no source has the headers of another one.
func TestUnitsDiffer(t *testing.T) {
	seen := map[string]int{}
	for i := range cxxActions + cxxTraining {
		headers, _, _ := strings.Cut(cxxUnit(i), "std::map")
		lines := strings.Split(headers, "\n")
		slices.Sort(lines)
		key := strings.Join(lines, "\n")
		if other, twice := seen[key]; twice {
			t.Errorf("sources %d and %d include the same", other, i)
		}
		seen[key] = i
	}
}

func TestPrefetchNames(t *testing.T) {
	names := prefetchNames()
	for _, name := range []string{
		"exact_0ms", "exact_10ms", "exact_50ms", "coarse_50ms", "none_50ms", "all_first_50ms",
		rowRoundTrips, rowBytes, rowWarmCost,
	} {
		if !slices.Contains(names, name) {
			t.Errorf("no row %s", name)
		}
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			t.Errorf("row %s is there twice", name)
		}
	}
}
