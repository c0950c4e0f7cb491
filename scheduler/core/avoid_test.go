package core

import (
	"fmt"
	"strings"
	"testing"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// A chronicle is a history that is told by a test.
type chronicle struct{ history }

func newChronicle(t *testing.T, c tuning.Config) *chronicle {
	return &chronicle{history{t: t, cfg: c, calls: map[uint64]string{}, actions: map[string]string{}}}
}

// tell carries out a line of a script, and returns what State answers.
func (c *chronicle) tell(format string, args ...any) string {
	return c.run(strings.Fields(fmt.Sprintf(format, args...)))
}

// TestManyAvoidOneWorker has all that a machine runs fail there at once, in some branches, while
// the other one is busy: the first gets what waits behind it, wherever that is.
func TestManyAvoidOneWorker(t *testing.T) {
	const positions = 60
	for _, branches := range []int{1, 7, positions} {
		for _, last := range []string{"invocation=of-its-own", "invocation=0", "invocation=0 priority=100"} {
			c := newChronicle(t, tuning.Config{SuspendAfter: 2 * positions, SyncInterval: never})
			c.tell("0s sync q idle of=q")
			c.tell("0s submit busy busy")
			for i := range positions {
				c.tell("0s sync p%d idle of=p", i)
				c.tell("0s submit op%d x%d invocation=%d", i, i, i%branches)
			}
			for i := range positions {
				c.tell("1s sync p%d completed x%d of=p error=EIO", i, i)
			}
			if n := c.state.View().Counts(); n.Queued != positions {
				t.Fatalf("%+v", n)
			}
			c.tell("2s submit last y %s", last)
			if got := c.tell("2s sync p0 idle of=p"); !strings.Contains(got, "p0 execute y") {
				t.Errorf("of %d branches, with %s: the worker is told %q, what suits it waits", branches, last, got)
			}
			if got := c.tell("2s sync p1 idle of=p"); got != "" {
				t.Errorf("a worker is told %q, nothing suits it", got)
			}
		}
	}
}

// TestManySparesYield has many actions run for nobody while as many wait: an event wakes as many
// workers as it has effort for, and the next one the others.
func TestManySparesYield(t *testing.T) {
	const workers, effort = 200, 30
	c := newChronicle(t, tuning.Config{StepEffort: effort, SyncInterval: never})
	for i := range workers {
		c.tell("0s sync w%d idle", i)
		c.tell("0s submit left%d left%d", i, i)
	}
	for i := range workers {
		c.tell("0s submit wait%d wait%d", i, i)
	}
	for i := range workers {
		c.tell("1s detach left%d", i)
	}
	woken, most := map[string]bool{}, 0
	for now := epoch.Add(lingering + 1e9); ; {
		out := c.state.Step(now, event.Tick{})
		most = max(most, len(out.Wakes))
		for _, w := range out.Wakes {
			woken[w] = true
		}
		if out.NextTick.After(now) || out.NextTick.IsZero() {
			break
		}
	}
	if len(woken) != workers || most > effort {
		t.Errorf("%d of %d workers are woken, %d at once, want %d at most", len(woken), workers, most, effort)
	}
}
