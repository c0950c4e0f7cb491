package bench

import (
	"os"
	"testing"
)

// TestWorkerRows sees that real workers give each row that is asked for a value, and
// leave nothing.
func TestWorkerRows(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("CI") != "" {
			t.Fatal("needs root")
		}
		t.Skip("needs root")
	}
	f, err := startFarm(t.Context(), newDir(t))
	check(t, err)
	t.Cleanup(func() { check(t, f.close()) })
	b := newWorkerBench(f, &workerOptions{
		options: options{runs: 1, only: []string{"noop_ms_1", rowSandbox, "noop_per_s_2_bare", "cpu_util_report2"}},
		noops:   8, outputs: 1,
	})
	check(t, b.measure(t.Context()))
	got := map[string]float64{}
	for _, r := range b.rows() {
		got[r.Name] = *r.Value
	}
	if len(got) != 4 || got["noop_ms_1"] <= 0 || got["noop_per_s_2_bare"] <= 0 {
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
