package core

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// replayed checks that a recording leads to the state that it ends with.
func replayed(t *testing.T, recording []byte) *Replayed {
	t.Helper()
	r, err := Replay(bytes.NewReader(recording))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.State.Dump(); got != r.Recorded {
		t.Fatalf("replayed:\n%s\nrecorded:\n%s", got, r.Recorded)
	}
	if problem := r.State.Check(); problem != "" {
		t.Fatal(problem)
	}
	return r
}

// TestReplay records random histories, with every kind of event, and replays them.
func TestReplay(t *testing.T) {
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 3))
		script := make([]byte, 3000)
		for i := range script {
			script[i] = byte(r.Uint32())
		}
		var recording bytes.Buffer
		j := NewJournal(&recording, math.MaxInt64)
		f := newFuzzer(t, script)
		check := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		check(f.state.Record(epoch, j))
		for len(f.script) > 0 {
			f.step()
		}
		want := f.state.Dump()
		f.state.EndRecord(epoch.Add(f.at))
		check(j.Run(ended()))
		if got := replayed(t, recording.Bytes()); got.Recorded != want || got.Events < 300 {
			t.Errorf("%d events, recorded:\n%s\nwant:\n%s", got.Events, got.Recorded, want)
		}
	}
}

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestRecordingIsCutOff(t *testing.T) {
	var recording bytes.Buffer
	h, j := recorded(t, &recording, math.MaxInt64)
	h.event(epoch, "submit", []string{"op1", "a"})
	whole := h.state.Dump()
	h.event(epoch, "submit", []string{"op2", "b"})
	if err := j.Run(ended()); err != nil {
		t.Fatal(err)
	}
	r, err := Replay(bytes.NewReader(recording.Bytes()[:recording.Len()-1]))
	if err != nil || r.Events != 1 || r.Recorded != "" || r.State.Dump() != whole {
		t.Errorf("%+v, %v", r, err)
	}
	for _, text := range []string{"", "x", "\x02\x08\x02"} {
		if _, err := Replay(strings.NewReader(text)); err == nil {
			t.Errorf("%q is taken for a recording", text)
		}
	}
}

// recorded starts a history that j takes down.
func recorded(t *testing.T, w io.Writer, limit int64) (*history, *Journal) {
	t.Helper()
	state, err := NewState(Config{})
	if err != nil {
		t.Fatal(err)
	}
	j := NewJournal(w, limit)
	if err := state.Record(epoch, j); err != nil {
		t.Fatal(err)
	}
	return &history{t: t, state: state, calls: map[uint64]string{}, actions: map[string]string{}, lastOf: map[string]uint64{}}, j
}

// TestJournalNeverDelays has a disk that is full, one that hangs, and a recording that is too
// long: State goes on, and memory does not fill.
func TestJournalNeverDelays(t *testing.T) {
	broken := errors.New("disk full")
	for name, test := range map[string]struct {
		w     io.Writer
		limit int64
		want  error
	}{
		"full": {failing{broken}, math.MaxInt64, broken},
		"long": {io.Discard, 1000, errTooLong},
		"slow": {io.Discard, math.MaxInt64, errTooSlow},
	} {
		h, j := recorded(t, test.w, test.limit)
		j.maxPending = 500
		for i := range 510 {
			h.state.Tick(epoch.Add(time.Duration(i)))
		}
		if n := len(j.pending); n != 500 {
			t.Errorf("%s: %d events in memory", name, n)
		}
		if err := j.Run(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
		h.state.Tick(epoch.Add(time.Hour))
		if n := len(j.pending); n != 0 {
			t.Errorf("%s: %d events in memory at the end", name, n)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// FuzzReplay reads any recording.
func FuzzReplay(f *testing.F) {
	f.Add([]byte("\xff\xff\xff\xff\xff\x7fx")) // an event of terabytes
	for seed := range byte(4) {
		var recording bytes.Buffer
		j := NewJournal(&recording, math.MaxInt64)
		h := newFuzzer(&testing.T{}, bytes.Repeat([]byte{seed, 7, 2 * seed, 31, 5}, 60))
		if err := h.state.Record(epoch, j); err != nil {
			f.Fatal(err)
		}
		for len(h.script) > 0 {
			h.step()
		}
		h.state.EndRecord(epoch.Add(h.at))
		if err := j.Run(ended()); err != nil {
			f.Fatal(err)
		}
		f.Add(recording.Bytes())
		f.Add(recording.Bytes()[:recording.Len()*2/3])
	}
	f.Fuzz(func(t *testing.T, recording []byte) {
		r, err := Replay(bytes.NewReader(recording))
		if err != nil {
			return
		}
		if problem := r.State.Check(); problem != "" {
			t.Error(problem)
		}
		_ = r.State.Dump()
	})
}
