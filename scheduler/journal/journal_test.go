package journal

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/pattern"
	"github.com/forerunner-build/forerunner/proto/record"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/drain"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// ended returns a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// recorded is a State that a Journal takes down.
type recorded struct {
	*core.State
	*Journal
}

func newRecorded(t *testing.T, w io.Writer, limit int64) recorded {
	t.Helper()
	state, err := core.NewState(tuning.Config{})
	if err != nil {
		t.Fatal(err)
	}
	j := New(w, limit)
	if err := j.Start(epoch, state); err != nil {
		t.Fatal(err)
	}
	return recorded{state, j}
}

func (r recorded) tell(now time.Time, e event.Event) {
	r.Event(now, e)
	r.Answer(r.Step(now, e))
}

func submit(name, action string) event.Event {
	return event.Submit{Operation: &request.Operation{Name: name, Digest: digest.Of(digest.SHA256, []byte(action)), Action: &repb.Action{}}}
}

func TestRecordingIsCutOff(t *testing.T) {
	var recording bytes.Buffer
	s := newRecorded(t, &recording, math.MaxInt64)
	s.tell(epoch, submit("op1", "a"))
	whole := s.answers.describe(s.State)
	s.tell(epoch, submit("op2", "b"))
	if err := s.Run(ended()); err != nil {
		t.Fatal(err)
	}
	r, err := Replay(bytes.NewReader(recording.Bytes()[:recording.Len()-1]), nil)
	if err != nil || r.Events != 1 || r.Recorded != "" || r.Dump != whole {
		t.Errorf("%+v, %v", r, err)
	}
	for _, text := range []string{"", "x", "\x02\x08\x02"} {
		if _, err := Replay(strings.NewReader(text), nil); err == nil {
			t.Errorf("%q is taken for a recording", text)
		}
	}
}

// TestJournalNeverDelays has a full disk, a disk that hangs, and a recording that is too long.
// State must continue, and memory must stay bounded.
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
		s := newRecorded(t, test.w, test.limit)
		s.maxPending = 500
		for i := range 510 {
			s.tell(epoch.Add(time.Duration(i)), event.Tick{})
		}
		if n := len(s.pending); n != 500 {
			t.Errorf("%s: %d events in memory", name, n)
		}
		if err := s.Run(t.Context()); !errors.Is(err, test.want) {
			t.Errorf("%s: %v", name, err)
		}
		s.tell(epoch.Add(time.Hour), event.Tick{})
		if n := len(s.pending); n != 0 {
			t.Errorf("%s: %d events in memory at the end", name, n)
		}
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestEveryEventIsRecorded writes and reads each kind of event of a recording.
func TestEveryEventIsRecorded(t *testing.T) {
	host, err := pattern.Parse("host=a")
	if err != nil {
		t.Fatal(err)
	}
	d := digest.Of(digest.SHA256, []byte("action"))
	quotaKey := quota.Key{Cohort: "c", Instance: "i"}
	one := &request.Operation{
		Name: "op", Instance: "i", Digest: d, Action: &repb.Action{}, Private: true, Priority: -1, Expected: 1, User: "u",
		Claims: map[string]string{"a": "b"}, Client: "c", Size: request.Size{Class: 1, Timeout: 2, Hedge: true, Expected: 3},
		Request: request.Metadata{ToolInvocation: "1", Correlated: "2", Mnemonic: "3", Target: "4", Configuration: "5"},
	}
	known := map[string]bool{"start": true, "end": true}
	for _, e := range append(core.Orders(), []event.Event{
		event.Submit{Operation: one},
		event.Attach{Name: "a"},
		event.Detach{Name: "b"},
		event.Detach{Name: "b", Now: true},
		event.Cancel{Name: "c"},
		core.Kill{Names: []string{"a", "b"}, Reason: "c"},
		&event.Report{
			Call: 1, Worker: "w", ID: map[string]string{"a": "b"}, Connection: 2, Prefix: "p", SizeClass: 3, Doing: event.Executing,
			Action: d, PreferIdle: true, Stage: event.Uploading, Instance: "p/i", Named: true,
		},
		event.Hangup{Worker: "w", Call: 1},
		event.Disconnect{Connection: 1},
		core.Drain{Record: drain.Record{Pattern: host, Reason: "r", Author: "a", Since: epoch}},
		core.Undrain{Pattern: host},
		core.DeleteQuota{Key: quotaKey},
		event.Tick{},
		core.PutQuota{Record: quota.Record{Key: quotaKey, Quota: quota.Quota{Min: 1, Max: 2}}, Preempt: true},
		event.Restore{Held: event.Held{
			Operation: one, Queued: epoch, Started: epoch.Add(1), Attempts: 2, Worker: "w", ID: map[string]string{"a": "b"},
			Prefix: "p", SizeClass: 3,
		}},
	}...) {
		m := encode(e).event
		known[string(m.ProtoReflect().WhichOneof(m.ProtoReflect().Descriptor().Oneofs().ByName("kind")).Name())] = true
		back, err := decode(m)
		if err != nil {
			t.Fatal(err)
		}
		if again := encode(back).event; !proto.Equal(again, m) {
			t.Errorf("%T: %v became %v", e, m, again)
		}
	}
	kinds := (&record.Event{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range kinds.Len() {
		if name := string(kinds.Get(i).Name()); !known[name] {
			t.Errorf("%s comes of no event", name)
		}
	}
}
