package core

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// A Seen is called for each event of a history, with the Out of State.
type Seen = func(now time.Time, e event.Event, out event.Out)

// Random applies random events to a State, as many as fit into size bytes. It returns the State and
// the time of the last event. begin gets the State before the first event.
func Random(t *testing.T, seed uint64, size int, begin func(now time.Time, s *State) Seen) (*State, time.Time) {
	r := rand.New(rand.NewPCG(seed, 3))
	script := make([]byte, size)
	for i := range script {
		script[i] = byte(r.Uint32())
	}
	f := newFuzzer(t, script)
	f.seen = begin(epoch, f.state)
	for len(f.script) > 0 {
		f.step()
	}
	return f.state, epoch.Add(f.at)
}
