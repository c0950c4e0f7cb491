package usage

import (
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/runner"
)

// TestOutOfMemory: people read the limit and the peak in units that they know.
func TestOutOfMemory(t *testing.T) {
	for want, bytes := range map[string][2]int64{
		"(limit 48 MiB, peak 47.5 MiB)":   {48 << 20, 95 << 19},
		"(limit 11.27 GiB, peak 2.5 GiB)": {12101386240, 5 << 29},
		"(limit 1023 MiB, peak 1 GiB)":    {1023 << 20, 1 << 30},
	} {
		c := Command{Limits: cgroup.Limits{Memory: bytes[0]}}
		c.Result = runner.Result{Group: &cgroup.Usage{OOMKills: 1, LimitReached: true, MemoryPeak: bytes[1]}}
		if got := c.OutOfMemory(); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
