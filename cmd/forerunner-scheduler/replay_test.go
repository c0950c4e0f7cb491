package main

import (
	"bytes"
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
	"github.com/forerunner-build/forerunner/scheduler/journal"
)

// TestReplay replays a recording, one that another scheduler would have made, and none.
func TestReplay(t *testing.T) {
	recording := func(skip int) []byte {
		state, err := core.NewState(tuning.Config{})
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		j, now := journal.New(&b, math.MaxInt64), time.Unix(1_800_000_000, 0)
		if err := j.Start(now, state); err != nil {
			t.Fatal(err)
		}
		for i, worker := range []string{"a", "b"} {
			e := &event.Report{Call: uint64(i + 1), Worker: worker, Doing: event.Idle}
			j.Event(now, e)
			if i != skip {
				j.Answer(state.Step(now, e))
			}
		}
		j.End(now, state)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := j.Run(ctx); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	whole1 := recording(-1)
	for _, test := range []struct {
		name         string
		recording    []byte
		want, wantIs string // of the output and the error; none: nothing
	}{
		{"whole", whole1, "2 events, as recorded\ncounts {Queued:0", ""},
		{"broken off", whole1[:len(whole1)-1], "2 events, the recording breaks off\n", ""},
		{"otherwise", recording(1), "2 events, not as recorded\n", "decides differently"},
		{"none", []byte("x"), "", "replay: "},
	} {
		var out strings.Builder
		err := replay(bytes.NewReader(test.recording), whole, &out)
		if !strings.HasPrefix(out.String(), test.want) || (err == nil) != (test.wantIs == "") ||
			err != nil && !strings.Contains(err.Error(), test.wantIs) {
			t.Errorf("%s: %v\n%s", test.name, err, out.String())
		}
	}
}
