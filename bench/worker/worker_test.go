package worker

import (
	"os"
	"testing"

	"github.com/forerunner-build/forerunner/bench/benchtest"
	"github.com/forerunner-build/forerunner/bench/floor"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/runner/launchertest"
)

func TestMain(m *testing.M) { launchertest.Main(m) }

// TestWorkerRows checks that real workers give each selected row a value and leave nothing behind.
func TestWorkerRows(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	f, err := testbed.Start(t.Context(), benchtest.NewDir(t))
	benchtest.Check(t, err)
	t.Cleanup(func() { benchtest.Check(t, f.Close()) })
	b := newWorkerBench(f, &workerOptions{
		Options: report.Options{Runs: 1, Only: []string{
			"noop_ms_1", rowSandbox, "noop_per_s_2_bare", "noop_cpu_ms_1", "cpu_util_report2", rowCompileCold, rowVerifyDelay9, floor.Noop,
		}},
		noops: 8, outputs: 1, headers: 2,
	})
	benchtest.Check(t, b.measure(t.Context()))
	got := map[string]float64{}
	for _, r := range b.rows() {
		got[r.Name] = *r.Value
	}
	if len(got) != 8 || got[floor.Noop] <= 0 || got[rowCompileCold] <= 0 || got["noop_ms_1"] <= 0 || got["noop_cpu_ms_1"] <= 0 || got["noop_per_s_2_bare"] <= 0 {
		t.Errorf("rows %v", got)
	}
	if u := got["cpu_util_report2"]; u <= 0 || u > 1 {
		t.Errorf("the CPU of a command is %v of its slot's time", u)
	}
	for _, s := range b.samples {
		if s[0].busy <= 0 || s[0].busy > 1 {
			t.Errorf("slots were busy %v of the time", s[0].busy)
		}
	}
}
