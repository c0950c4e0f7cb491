package core_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/journal"
)

// randomRecording records a random history, with every kind of event, and returns how often each
// kind came.
func randomRecording(t *testing.T, seed uint64, size int) (recording []byte, kinds map[string]int) {
	t.Helper()
	var b bytes.Buffer
	j := journal.New(&b, math.MaxInt64)
	kinds = map[string]int{}
	state, last := core.Random(t, seed, size, func(now time.Time, s *core.State) core.Seen {
		if err := j.Start(now, s); err != nil {
			t.Fatal(err)
		}
		return func(now time.Time, e event.Event, out event.Out) {
			kinds[strings.TrimPrefix(fmt.Sprintf("%T", e), "*")]++
			j.Event(now, e)
			j.Answer(out)
		}
	})
	j.End(last, state)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := j.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), kinds
}

// whole is for journal.Replay: it checks the State after each event.
func whole(_ int, s *core.State) error {
	if problem := s.Check(); problem != "" {
		return errors.New(problem)
	}
	return nil
}

// TestReplay records random histories and replays them.
func TestReplay(t *testing.T) {
	all := map[string]int{}
	for seed := range uint64(6) {
		recording, kinds := randomRecording(t, seed, 4200)
		r, err := journal.Replay(bytes.NewReader(recording), whole)
		if err != nil {
			t.Fatal(err)
		}
		if r.Dump != r.Recorded || r.Events < 300 {
			t.Errorf("%d events, replayed:\n%s\nrecorded:\n%s", r.Events, r.Dump, r.Recorded)
		}
		maps.Copy(all, kinds)
	}
	for _, e := range core.EventTypes(t) {
		if all[e] == 0 {
			t.Errorf("the fuzzer makes no %s", e)
		}
	}
}

// FuzzReplay reads any recording.
func FuzzReplay(f *testing.F) {
	f.Add([]byte("\xff\xff\xff\xff\xff\x7fx")) // an event of terabytes
	for seed := range uint64(4) {
		recording, _ := randomRecording(&testing.T{}, seed, 300)
		f.Add(recording)
		f.Add(recording[:len(recording)*2/3])
	}
	f.Fuzz(func(t *testing.T, recording []byte) {
		r, err := journal.Replay(bytes.NewReader(recording), nil)
		if err != nil {
			return
		}
		if problem := r.State.Check(); problem != "" {
			t.Error(problem)
		}
	})
}
