package local

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/forerunner-build/forerunner/bench/benchtest"
	"github.com/forerunner-build/forerunner/bench/floor"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestLocalRows checks that the real programs give each requested row a value and leave nothing
// behind.
func TestLocalRows(t *testing.T) {
	for _, c := range []struct {
		name  string
		bazel bool
		only  []string
	}{
		{"no-ops", false, append(rowsOfOneClient(noops), noops.row(rate), trees.row(latency), trees.row(rate), upNoops.row(allCPU), upTrees.row(rate), rowOutput, floor.Noop, floor.Mount)},
		{"builds", true, []string{rowWallLocal, rowCPULocal, rowMount}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// An action may take so little of these that the value is 0.
			mayBeNothing := []string{noops.row(commandCPU), noops.rowOfStage("prepare"), noops.rowOfStage("wait"), noops.rowOfStage("report")}
			if os.Geteuid() != 0 {
				programs.Needs(t, "a worker needs root")
			}
			if _, err := exec.LookPath("bazel"); err != nil && c.bazel {
				programs.Needs(t, "bazel is missing: apt-get install bazel-bootstrap")
			}
			b := newLocalBench(&localOptions{
				Options: report.Options{Runs: 1, Only: c.only}, programs: programs.Build(t), bazel: "bazel", packages: 1, warm: 1, noops: 8, output: 1 << 20,
			}, benchtest.NewDir(t))
			benchtest.Check(t, b.measure(t.Context()))
			got := map[string]float64{}
			for _, r := range b.rows() {
				got[r.Name] = *r.Value
			}
			for _, name := range c.only {
				if v, ok := got[name]; !ok || v < 0 || v == 0 && !slices.Contains(mayBeNothing, name) {
					t.Errorf("row %s: %v, %v", name, v, ok)
				}
			}
			if len(got) != len(c.only) {
				t.Errorf("rows %v, want %q", got, c.only)
			}
		})
	}
}
