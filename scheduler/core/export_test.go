package core

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// A Seen is called for each event of a history, with what State answers.
type Seen = func(now time.Time, e event.Event, out event.Out)

// Random has random events happen to a State, as many as fit into so many bytes, and returns it
// with when the last one did. Begin is given the State before the first.
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
