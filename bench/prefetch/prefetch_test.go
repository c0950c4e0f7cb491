package prefetch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/bench/benchtest"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/runner/launchertest"
	"github.com/forerunner-build/forerunner/test/programs"
	"github.com/forerunner-build/forerunner/vfs"
)

func TestMain(m *testing.M) { launchertest.Main(m) }

// newTinyPrefetch has a farm of its own. Its actions print a few files instead of building
// something. It measures each cell runs times.
func newTinyPrefetch(t *testing.T, runs int, only ...string) *prefetchBench {
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
	b := newPrefetchBench(f, &prefetchOptions{Options: report.Options{Runs: runs, Only: only}})
	w := &workload{name: "tiny", slots: 2, inputs: in}
	for _, text := range []string{"one", "two", "three"} {
		w.actions = append(w.actions, catAction(in.Root, "cat read/a read/b >out; echo "+text))
		w.training = append(w.training, catAction(in.Root, "cat read/* >out; echo "+text))
	}
	w.strange = []*testbed.Action{catAction(in.Root, "cat unread/c >out")}
	for _, work := range []string{workGo, workCXX, workPython, workSmall} {
		b.works[work] = w
	}
	return b
}

func catAction(root digest.Digest, script string) *testbed.Action {
	return &testbed.Action{
		Root:    root,
		Command: testbed.NewCommand([]string{"/bin/sh", "-c", script}, "out", "PATH=/usr/bin:/bin"),
		Who:     &repb.RequestMetadata{ActionMnemonic: "Cat"},
	}
}

// requireFUSE skips the test if input roots cannot be mounted.
func requireFUSE(t *testing.T, err error) {
	t.Helper()
	if errors.Is(err, vfs.ErrUnavailable) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	benchtest.Check(t, err)
}

func TestPrefetchRows(t *testing.T) {
	only := []string{"exact_0ms", "peer_50ms", "none_2ms", "all_first_2ms", "coarse_50ms", rowBytes, rowWarmCost, rowMisfit}
	b := newTinyPrefetch(t, 2, only...)
	requireFUSE(t, b.measure(t.Context()))
	var names []string
	for _, r := range b.rows() {
		names = append(names, r.Name)
		if r.Value == nil || *r.Value <= 0 && r.Name != rowWarmCost {
			t.Errorf("row %s has no value: %+v", r.Name, r)
		}
	}
	if want := "exact_0ms peer_50ms coarse_50ms none_2ms all_first_2ms bytes_over_used warm_cost misfit_coarse_50ms"; strings.Join(names, " ") != want {
		t.Errorf("rows %q, want %q", names, want)
	}
	// Three actions read two files of 6,000 bytes each. The worker stores each file once.
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
		// With three actions on two slots, the last one may use the profile of the first.
		if s := b.samples[c][0]; s.profiles[profile] < 2 {
			t.Errorf("%s: profiles of three actions: %v", c.column, s.profiles)
		}
	}
	if n := len(b.samples[cell{workGo, none, 2}]); n != 2 {
		t.Errorf("%d samples in 2 runs", n)
	}
	noWorkerLeft(t, b.farm.Dir)
}

// noWorkerLeft fails the test if the folder of an ended worker still exists.
func noWorkerLeft(t *testing.T, dir string) {
	t.Helper()
	if left, err := filepath.Glob(filepath.Join(dir, "*-[0-9]*")); err != nil || len(left) > 0 {
		t.Errorf("left by workers: %v, %v", left, err)
	}
}

// TestOutsideRows checks that the real programs give the rows of column outside values and leave
// nothing behind.
func TestOutsideRows(t *testing.T) {
	b := newTinyPrefetch(t, 1, "outside_10ms", "outside_50ms", rowColdCPU)
	requireFUSE(t, b.farm.WithWorker(t.Context(), testbed.Setting{Method: vfs.FUSE, Slots: 1}, func(*testbed.Proxy) error { return nil }))
	b.o.programs = programs.Build(t)
	benchtest.Check(t, b.startOutside(t.Context()))
	t.Cleanup(func() { benchtest.Check(t, b.close()) })
	benchtest.Check(t, b.measure(t.Context()))
	rows := b.rows()
	for _, r := range rows {
		if r.Value == nil || *r.Value <= 0 && r.Name != rowColdCPU {
			t.Errorf("row %s has no value: %+v", r.Name, r)
		}
	}
	if len(rows) != 3 {
		t.Errorf("%d rows, want 3", len(rows))
	}
	for _, ms := range []int{nearMS, farMS} {
		cold, again := b.samples[cell{workGo, outside, ms}], b.samples[cell{workGo, outsideWarm, ms}]
		if len(cold) != 1 || len(again) != 1 {
			t.Fatalf("%d and %d samples at %d ms in one run", len(cold), len(again), ms)
		}
		for i := range cold {
			if cold[i].profiles["exact"] != 3 || cold[i].fetched < 2*6000 || cold[i].wire <= again[i].wire || again[i].fetched != 0 || again[i].serving <= 0 {
				t.Errorf("at %d ms: %+v, then %+v", ms, cold[i], again[i])
			}
		}
	}
	noWorkerLeft(t, b.outside.dir)
}

// TestNoProgramsOutside checks that without the programs these rows say so, and the others are
// measured.
func TestNoProgramsOutside(t *testing.T) {
	only := report.Options{Only: []string{"outside_50ms", rowColdCPU}}
	b := newPrefetchBench(nil, &prefetchOptions{Options: only, programs: t.TempDir()})
	b.works[workGo] = &workload{name: "go build"}
	benchtest.Check(t, b.startOutside(t.Context()))
	if b.can(cell{workGo, outside, farMS}) || !b.can(cell{workGo, exact, farMS}) {
		t.Error("column outside can be measured, or another column cannot")
	}
	for _, r := range b.rows() {
		if r.Value != nil || !strings.HasPrefix(r.Note, "not measured: no forerunner-scheduler in ") {
			t.Errorf("%+v", r)
		}
	}
}

// TestMisfitRows checks that wrong profiles are wrong, and that workers use them.
func TestMisfitRows(t *testing.T) {
	b := newTinyPrefetch(t, 1, rowMisfitWorst, rowMisfitAgain, "python_50ms", "python_first_50ms", "python_bytes")
	b.lacks[workGo] = "left out: all works of the test are the same"
	delete(b.works, workGo)
	requireFUSE(t, b.measure(t.Context()))
	rows := b.rows()
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
		if r.Value == nil || *r.Value <= 0 {
			t.Errorf("row %s has no value: %+v", r.Name, r)
		}
	}
	if want := "python_50ms python_first_50ms misfit_worst misfit_again_bytes python_bytes"; strings.Join(names, " ") != want {
		t.Errorf("rows %q, want %q", names, want)
	}
	for _, column := range misfitColumns() {
		for _, work := range []string{workPython, workSmall} {
			want := "exact"
			if column == misfit {
				want = "coarse"
			}
			samples := b.samples[cell{work, column, farMS}]
			if len(samples) != 1 {
				t.Errorf("%s %s: %d samples in one run", work, column, len(samples))
			}
			for _, s := range samples {
				if s.profiles[want] < 2 {
					t.Errorf("%s %s: profiles of three actions: %v, want %s", work, column, s.profiles, want)
				}
			}
		}
	}
	for column, want := range map[column]string{
		exact: "read/a read/b", renamed: "read/a.old read/b.old", poisoned: "read/a read/b unread/c", stale: "unread/c",
		stale.again(): "read/a read/b", misfit.again(): "read/a read/b", poisoned.again(): "read/a read/b unread/c",
	} {
		var has []string
		for _, path := range []string{"read/a", "read/a.old", "read/b", "read/b.old", "unread/c", "unread/c.old"} {
			if profileHas(t, b, memoryKey{workSmall, column}, path) {
				has = append(has, path)
			}
		}
		if got := strings.Join(has, " "); got != want {
			t.Errorf("the profile of column %s has %q, want %q", column, got, want)
		}
	}
}

// profileHas reports whether the profile in a memory for the first action contains a path.
func profileHas(t *testing.T, b *prefetchBench, key memoryKey, path string) bool {
	t.Helper()
	m := b.memories[key]
	store, err := records.OpenBolt(filepath.Join(m.folder, recordsFile), records.BoltOptions{})
	benchtest.Check(t, err)
	defer func() { benchtest.Check(t, store.Close()) }()
	raw, err := b.farm.Storage.Read(t.Context(), m.actions[0])
	benchtest.Check(t, err)
	var action repb.Action
	benchtest.Check(t, proto.Unmarshal(raw, &action))
	value, err := store.Get(t.Context(), records.Key{Bucket: names.ProfileBucket, Digest: digest.OfReduced(testbed.Function, &action)})
	benchtest.Check(t, err)
	record, ok := prefetch.ParseRecord(value)
	return ok && record.Profile.Contains(prefetch.HashPath(path))
}

// TestWrongPaths checks that a stale profile has as many files as are read, from all over the tree.
func TestWrongPaths(t *testing.T) {
	unread := strings.Split("a b c d e f g h i", " ")
	if got := strings.Join(wrongPaths(stale, []string{"x", "y"}, unread), " "); got != "a e" {
		t.Errorf("instead of two of nine: %s", got)
	}
	if got := wrongPaths(stale, unread, []string{"x"}); len(got) != 1 {
		t.Errorf("instead of nine of one: %q", got)
	}
}

// TestWorstMisfit checks that the worst ratio counts, and that the row names missing measurements.
func TestWorstMisfit(t *testing.T) {
	b := newPrefetchBench(nil, &prefetchOptions{})
	b.works[workGo], b.lacks[workPython] = &workload{name: "go build"}, "no python3"
	for column, waited := range map[column]float64{none: 2, misfit: 2.2, renamed: 5, poisoned: 1, stale: 2} {
		c := cell{workGo, column, farMS}
		b.samples[c] = append(b.samples[c], sample{stalled: waited})
	}
	r := b.misfitWorst()
	if r.Value == nil || *r.Value != 2.5 || r.Baseline != "go build waited 2.00 s" ||
		!strings.Contains(r.Note, "stale 1.00") || !strings.Contains(r.Note, "not measured: no python3") {
		t.Errorf("%+v", r)
	}
	if r := newPrefetchBench(nil, &prefetchOptions{}).misfitWorst(); r.Value != nil || !strings.HasPrefix(r.Note, "not measured") {
		t.Errorf("of nothing: %+v", r)
	}
}

// TestLacks checks that each row names a missing requirement, and how to install it.
func TestLacks(t *testing.T) {
	err := needs("/usr/bin/not-there", "some-package")
	l, ok := errors.AsType[lack](err)
	if !ok || needs("/bin/sh", "dash") != nil {
		t.Fatalf("%v, want a lack, and none of /bin/sh", err)
	}
	b := newPrefetchBench(nil, &prefetchOptions{Options: report.Options{Only: []string{"javac_50ms", "javac_first_50ms", "javac_bytes"}}})
	b.lacks[workJavac] = string(l)
	rows := b.rows()
	for _, r := range rows {
		if r.Value != nil || r.Note != "not measured: no /usr/bin/not-there (apt-get install some-package)" {
			t.Errorf("%+v", r)
		}
	}
	if len(rows) != 3 {
		t.Errorf("%d rows, want 3", len(rows))
	}
}

// TestStage checks that a staged folder has the targets of symlinks, and no unwanted files.
func TestStage(t *testing.T) {
	from, b := t.TempDir(), newPrefetchBench(&testbed.Farm{Dir: t.TempDir()}, &prefetchOptions{})
	for _, name := range []string{"a/kept", "a/left", "out/linked", "b/left/below"} {
		benchtest.Check(t, os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o755))
		benchtest.Check(t, os.WriteFile(filepath.Join(from, name), []byte(name), 0o755))
	}
	benchtest.Check(t, os.Symlink("kept", filepath.Join(from, "a", "file")))
	benchtest.Check(t, os.Symlink(filepath.Join(from, "out"), filepath.Join(from, "a", "folder")))
	benchtest.Check(t, os.Symlink("nowhere", filepath.Join(from, "a", "dangling")))
	to, err := b.stage("x", from, func(p string) bool { return filepath.Base(p) != "left" && p != "out" })
	benchtest.Check(t, err)
	var got []string
	benchtest.Check(t, filepath.WalkDir(to, func(path string, e fs.DirEntry, err error) error {
		if below, _ := filepath.Rel(to, path); err == nil && e.Type().IsRegular() {
			text, err := os.ReadFile(path)
			benchtest.Check(t, err)
			got = append(got, below+"="+string(text))
		}
		return err
	}))
	if want := "a/file=a/kept a/folder/linked=out/linked a/kept=a/kept"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
	if info, err := os.Stat(filepath.Join(to, "a", "kept")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("a program was staged as %v, %v", info.Mode(), err)
	}
}

// TestPrefetchFailedAction checks that a failing action gives an error with the reason, not a fast
// run.
func TestPrefetchFailedAction(t *testing.T) {
	b := newTinyPrefetch(t, 2, "none_0ms")
	root := b.works[workGo].actions[0].Root
	b.works[workGo].actions = []*testbed.Action{catAction(root, "cat not-there")}
	err := b.measure(t.Context())
	if errors.Is(err, vfs.ErrUnavailable) {
		requireFUSE(t, err)
	}
	if err == nil || !strings.Contains(err.Error(), "not-there: No such file") {
		t.Errorf("error %v, want the output of the command", err)
	}
	if rows := b.rows(); len(rows) != 1 || rows[0].Value != nil {
		t.Errorf("rows %+v of work that failed", rows)
	}
}

// TestRoundTripsDerived: if the time grows by 0.4 s when each round trip takes 40 ms longer, there
// are ten round trips.
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

// TestUnitsDiffer checks that no two sources have the same headers.
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
		rowRoundTrips, rowBytes, rowWarmCost, rowMisfitWorst, rowColdCPU, "outside_10ms", "outside_50ms",
		"gcc_50ms", "python_50ms", "webpack_50ms", "javac_50ms", "go_50ms", "gcc_first_50ms", "javac_bytes",
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
