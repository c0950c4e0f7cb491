package local

import (
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/forerunner-build/forerunner/bench/benchtest"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/test/programs"
)

// TestLocalRows sees that real programs give each row that is asked for a value, and leave nothing.
func TestLocalRows(t *testing.T) {
	for _, c := range []struct {
		name  string
		bazel bool
		only  []string
	}{
		{"no-ops", false, append(rowsOfOneClient(), rowPerSecond, rowFloor, rowFloorMount)},
		{"builds", true, []string{rowWallLocal, rowCPULocal, rowMount}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// An action may take so little of these that it counts as nothing.
			mayBeNothing := []string{rowCommandCPU, rowOfStage("wait"), rowOfStage("report")}
			if os.Geteuid() != 0 {
				programs.Needs(t, "a worker needs root")
			}
			if _, err := exec.LookPath("bazel"); err != nil && c.bazel {
				programs.Needs(t, "bazel is missing: apt-get install bazel-bootstrap")
			}
			b := newLocalBench(&localOptions{
				Options: report.Options{Runs: 1, Only: c.only}, programs: programs.Build(t), bazel: "bazel", packages: 1, noops: 8,
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

// TestFamily sees what processes below this one use, those that live and those that have ended.
func TestFamily(t *testing.T) {
	before, err := familyOf(os.Getpid())
	benchtest.Check(t, err)
	const busy = `i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done`
	benchtest.Check(t, exec.Command("/bin/sh", "-c", busy).Run())
	after, err := familyOf(os.Getpid())
	benchtest.Check(t, err)
	if used := after.less(before); used.ended <= 0 || used.self <= 0 || used.children != 0 {
		t.Errorf("used by what has ended: %+v", used)
	}
	alive := exec.Command("/bin/sh", "-c", busy+"; echo; read wait")
	in, err := alive.StdinPipe()
	benchtest.Check(t, err)
	out, err := alive.StdoutPipe()
	benchtest.Check(t, err)
	benchtest.Check(t, alive.Start())
	_, err = out.Read(make([]byte, 1))
	benchtest.Check(t, err)
	now, err := familyOf(os.Getpid())
	benchtest.Check(t, err)
	if used := now.less(after); used.children <= 0 || used.ended != 0 || used.below == 0 {
		t.Errorf("used by what lives: %+v", used)
	}
	benchtest.Check(t, in.Close())
	_ = alive.Wait() // read found the end of its input
}
