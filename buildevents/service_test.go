package buildevents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/proto/bazel"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/publish"
)

// A call is a stream whose client sends what is put into it, and notes the answers.
type call struct {
	grpc.ServerStream
	ctx      context.Context
	requests chan *publish.PublishBuildToolEventStreamRequest
	acks     chan int64
	said     *publish.PublishBuildToolEventStreamResponse // the last answer
	ended    chan error
	build    string // id of the build
	cut      error  // with which it ends; nil: the client is done
}

func (c *call) Context() context.Context { return c.ctx }

func (c *call) Recv() (*publish.PublishBuildToolEventStreamRequest, error) {
	if req, ok := <-c.requests; ok {
		return req, nil
	}
	if c.cut != nil {
		return nil, c.cut
	}
	return nil, io.EOF
}

func (c *call) Send(m *publish.PublishBuildToolEventStreamResponse) error {
	c.said = m
	c.acks <- m.GetSequenceNumber()
	return nil
}

func open(t *testing.T, s *Service) *call {
	c := &call{
		ctx: t.Context(), requests: make(chan *publish.PublishBuildToolEventStreamRequest, 10_000),
		acks: make(chan int64, 10_000), ended: make(chan error, 1), build: "x",
	}
	go func() { c.ended <- s.PublishBuildToolEventStream(c) }()
	return c
}

// send sends an event of build "b-1", and waits for its answer, or the error with which the call
// ends.
func (c *call) send(n int64, e *bazel.BuildEvent) (int64, error) {
	return c.sendAny("b-1", n, &publish.BuildEvent{Event: &publish.BuildEvent_BazelEvent{BazelEvent: packed(e)}})
}

func (c *call) sendAny(invocation string, n int64, e *publish.BuildEvent) (int64, error) {
	c.requests <- &publish.PublishBuildToolEventStreamRequest{OrderedBuildEvent: &publish.OrderedBuildEvent{
		StreamId: &publish.StreamId{InvocationId: invocation, BuildId: c.build}, SequenceNumber: n, Event: e,
	}}
	select {
	case ack := <-c.acks:
		return ack, nil
	case err := <-c.ended:
		return 0, err
	}
}

// end ends a call, with an error as when the connection breaks, and returns what it ended with.
func (c *call) end(cut error) error {
	c.cut = cut
	close(c.requests)
	return <-c.ended
}

func packed(e *bazel.BuildEvent) *anypb.Any {
	b, err := proto.Marshal(e)
	if err != nil {
		panic(err)
	}
	return &anypb.Any{TypeUrl: bazelEvent, Value: b}
}

func target(label string, success bool) *bazel.BuildEvent {
	return &bazel.BuildEvent{
		Id:      &bazel.BuildEventId{Id: &bazel.BuildEventId_TargetCompleted{TargetCompleted: &bazel.BuildEventId_TargetCompletedId{Label: label}}},
		Payload: &bazel.BuildEvent_Completed{Completed: &bazel.TargetComplete{Success: success}},
	}
}

var finished = &bazel.BuildEvent{Payload: &bazel.BuildEvent_Finished{Finished: &bazel.BuildFinished{ExitCode: &bazel.BuildFinished_ExitCode{Name: "SUCCESS"}}}}

// kept returns the last record of each build.
func kept(t *testing.T, store *history.Store) []*historypb.Record {
	t.Helper()
	list, _, err := store.Find(t.Context(), history.Query{Builds: true, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func newStore(t *testing.T, folder string) *history.Store {
	t.Helper()
	store, err := history.Open(folder, history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestStreamThatIsCut continues a build after its connection broke, after a restart of the
// scheduler, and during a call that hangs. Each event must be acknowledged as often as it arrives,
// and counted once.
func TestStreamThatIsCut(t *testing.T) {
	folder := t.TempDir()
	store := newStore(t, folder)
	s := New(store, nil)
	expect := func(c *call, n int64, e *bazel.BuildEvent) {
		t.Helper()
		if ack, err := c.send(n, e); ack != n || err != nil {
			t.Errorf("event %d is answered with %d, %v", n, ack, err)
		}
	}
	first := open(t, s)
	for n := int64(1); n <= 4; n++ {
		expect(first, n, target(fmt.Sprintf("//a:%d", n), true))
	}
	expect(first, 4, target("//a:4", true)) // twice in one call
	expect(first, 2, target("//a:2", true))
	expect(first, 5, target("//a:5", true))
	if err := first.end(status.Error(codes.Canceled, "the connection broke")); err == nil {
		t.Error("a call that broke ends well")
	}
	second := open(t, s)
	for n := int64(3); n <= 6; n++ {
		expect(second, n, target(fmt.Sprintf("//a:%d", n), n != 6))
	}
	third := open(t, s) // while the server does not know yet that the second one is dead
	expect(third, 6, target("//a:6", false))
	expect(third, 7, target("//a:7", true))
	if _, err := second.send(7, target("//a:7", true)); status.Code(err) != codes.Aborted {
		t.Errorf("the call that was followed by another ends with %v", err)
	}
	_ = third.end(status.Error(codes.Unavailable, "the scheduler ends"))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}

	store = newStore(t, folder)
	defer store.Close()
	fourth := open(t, New(store, nil))
	expect(fourth, 7, target("//a:7", true))
	expect(fourth, 8, finished)
	if _, err := fourth.sendAny("b-1", 9, &publish.BuildEvent{Event: &publish.BuildEvent_ComponentStreamFinished{}}); err != nil {
		t.Error(err)
	}
	if err := fourth.end(nil); err != nil {
		t.Errorf("the last call ends with %v", err)
	}
	list := kept(t, store)
	if len(list) != 1 {
		t.Fatalf("%d builds are known, want 1", len(list))
	}
	b := list[0].GetBuild()
	if b.GetTargetsBuilt() != 6 || b.GetTargetsFailed() != 1 || b.GetLastEvent() != 9 || !b.GetEnded() || b.GetIncomplete() ||
		list[0].GetOutcome() != historypb.Outcome_SUCCEEDED {
		t.Errorf("the build is %v, %v", list[0].GetOutcome(), b)
	}
}

// TestEventsThatWereLost begins in the middle of a stream, as after a crash. The build must
// continue, and its record must say that events are missing.
func TestEventsThatWereLost(t *testing.T) {
	store := newStore(t, "")
	c := open(t, New(store, nil))
	if ack, err := c.send(41, target("//a:41", true)); ack != 41 || err != nil {
		t.Errorf("event 41 is answered with %d, %v", ack, err)
	}
	if err := c.end(nil); err != nil {
		t.Error(err)
	}
	if b := kept(t, store)[0].GetBuild(); !b.GetIncomplete() || b.GetTargetsBuilt() != 1 {
		t.Errorf("the build is %v", b)
	}
}

func TestWhatNoBuildToolSends(t *testing.T) {
	s := New(newStore(t, ""), nil)
	event := target("//a", true)
	for name, send := range map[string]func(c *call) error{
		"a gap": func(c *call) error {
			_, _ = c.send(1, event)
			_, err := c.send(3, event)
			return err
		},
		"no number": func(c *call) error { _, err := c.send(0, event); return err },
		"no name":   func(c *call) error { _, err := c.sendAny("", 1, nil); return err },
		"a long name": func(c *call) error {
			_, err := c.sendAny(strings.Repeat("x", maxName+1), 1, nil)
			return err
		},
		"two streams": func(c *call) error {
			_, _ = c.send(1, event)
			_, err := c.sendAny("b-2", 2, nil)
			return err
		},
	} {
		if err := send(open(t, s)); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := len(s.live); n != 0 {
		t.Errorf("%d builds are live after the end of all calls", n)
	}
}

// TestWhatIsKeptOfAStream sends names that are longer than any build tool's, in unknown fields and
// in an option. They must be neither stored nor sent back.
func TestWhatIsKeptOfAStream(t *testing.T) {
	s := New(newStore(t, ""), nil)
	c := open(t, s)
	id := &publish.StreamId{InvocationId: "b-1"}
	id.ProtoReflect().SetUnknown(protowire.AppendBytes(protowire.AppendTag(nil, 1000, protowire.BytesType), make([]byte, 1<<20)))
	for n, e := range []*bazel.BuildEvent{
		{Payload: &bazel.BuildEvent_OptionsParsed{OptionsParsed: &bazel.OptionsParsed{CmdLine: []string{instanceFlag + strings.Repeat("x", maxName+1)}}}}, finished,
	} {
		c.requests <- &publish.PublishBuildToolEventStreamRequest{OrderedBuildEvent: &publish.OrderedBuildEvent{
			StreamId: id, SequenceNumber: int64(n + 1), Event: &publish.BuildEvent{Event: &publish.BuildEvent_BazelEvent{BazelEvent: packed(e)}},
		}}
		<-c.acks
	}
	if n := proto.Size(c.said); n > 100 {
		t.Errorf("an answer has %d bytes", n)
	}
	s.mu.Lock()
	l := s.live[key{"", "b-1", ""}]
	s.mu.Unlock()
	if n := len(l.build.instance); n > 0 {
		t.Errorf("an instance name of %d bytes is kept", n)
	}
	if err := c.end(nil); err != nil {
		t.Error(err)
	}
}

// TestEverythingIsAnswered sends what cannot be read, to a service that keeps nothing, too.
func TestEverythingIsAnswered(t *testing.T) {
	store := newStore(t, "")
	metrics := prometheus.NewRegistry()
	for _, s := range []*Service{New(nil, nil), New(store, metrics)} {
		c := open(t, s)
		for i, e := range []*publish.BuildEvent{
			nil,
			{},
			{Event: &publish.BuildEvent_BazelEvent{}},
			{Event: &publish.BuildEvent_BazelEvent{BazelEvent: &anypb.Any{TypeUrl: bazelEvent, Value: []byte("\xff\xff")}}},
			{Event: &publish.BuildEvent_BazelEvent{BazelEvent: &anypb.Any{TypeUrl: "type.googleapis.com/x", Value: []byte("\xff\xff")}}},
			{Event: &publish.BuildEvent_BazelEvent{BazelEvent: packed(&bazel.BuildEvent{Payload: &bazel.BuildEvent_Progress{
				Progress: &bazel.Progress{Stderr: strings.Repeat("x", mostDecoded)},
			}})}},
			{Event: &publish.BuildEvent_BazelEvent{BazelEvent: &anypb.Any{TypeUrl: bazelEvent}}}, // all that is received of a larger one
		} {
			if ack, err := c.sendAny("b-1", int64(i+1), e); ack != int64(i+1) || err != nil {
				t.Errorf("event %d is answered with %d, %v", i+1, ack, err)
			}
		}
		if err := c.end(nil); err != nil {
			t.Error(err)
		}
	}
	if b := kept(t, store)[0].GetBuild(); b.GetTooLarge() != 2 || b.GetLastEvent() != 7 {
		t.Errorf("the build is %v, and two of its events are too large", b)
	}
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				counts[l.GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	if want := map[string]float64{taken: 5, tooLarge: 2, notKept: 0}; !maps.Equal(counts, want) {
		t.Errorf("counted are %v, want %v", counts, want)
	}
}

// TestPatterns: the first event announces the target patterns of a build. They must be known
// without the event of their targets, and be stored once.
func TestPatterns(t *testing.T) {
	pattern := &bazel.BuildEventId{Id: &bazel.BuildEventId_Pattern{Pattern: &bazel.BuildEventId_PatternExpandedId{Pattern: []string{"//...", "-//b"}}}}
	first := packed(&bazel.BuildEvent{Payload: &bazel.BuildEvent_Started{Started: &bazel.BuildStarted{Command: "build"}}})
	children, err := proto.Marshal(&bazel.Announcements{Children: []*bazel.BuildEventId{{}, pattern}})
	if err != nil {
		t.Fatal(err)
	}
	first.Value = append(first.Value, children...)
	for _, more := range []bool{false, true} {
		store := newStore(t, "")
		c := open(t, New(store, nil))
		_, _ = c.sendAny("b-1", 1, &publish.BuildEvent{Event: &publish.BuildEvent_BazelEvent{BazelEvent: first}})
		if more {
			_, _ = c.send(2, &bazel.BuildEvent{Id: pattern})
		}
		_ = c.end(nil)
		if got := kept(t, store)[0].GetBuild().GetPatterns(); !slices.Equal(got, []string{"//...", "-//b"}) {
			t.Errorf("the patterns are %q", got)
		}
	}
}

// TestLargeEvents has events with much unknown content, such as the names of all targets of a
// pattern, and events that take more memory when decoded.
func TestLargeEvents(t *testing.T) {
	pattern := &bazel.BuildEvent{Id: &bazel.BuildEventId{Id: &bazel.BuildEventId_Pattern{
		Pattern: &bazel.BuildEventId_PatternExpandedId{Pattern: []string{"//..."}},
	}}}
	children := protowire.AppendBytes(protowire.AppendTag(nil, 2, protowire.BytesType), make([]byte, 50))
	large := packed(pattern)
	large.Value = append(large.Value, bytes.Repeat(children, 100_000)...)
	if e, isTooLarge := decoded(large); isTooLarge || !proto.Equal(e, pattern) {
		t.Errorf("of a pattern with 100,000 targets is kept %.100v, too large: %t", e, isTooLarge)
	}
	options := &anypb.Any{TypeUrl: bazelEvent, Value: slices.Concat([]byte{0x6a, 0xc0, 0x9a, 0x0c}, slices.Repeat([]byte{0x1a, 0}, 100_000))}
	if e, isTooLarge := decoded(options); !isTooLarge || e != nil {
		t.Error("an event with 100,000 empty options is decoded")
	}
}

// TestBuildsOfOthers publishes the same invocation as two users. Each has a build of his own. The
// first one's build continues.
func TestBuildsOfOthers(t *testing.T) {
	store := newStore(t, "")
	s := New(store, nil)
	mine := open(t, s)
	_, _ = mine.send(1, target("//mine", true))
	s.mu.Lock()
	s.live[key{"eve", "b-1", "x"}] = newLive(s, key{"eve", "b-1", "x"}, resumed(nil))
	s.mu.Unlock()
	if ack, err := mine.send(2, target("//mine:2", true)); ack != 2 || err != nil {
		t.Errorf("%d, %v", ack, err)
	}
	_ = mine.end(nil)
	if b := kept(t, store)[0].GetBuild(); b.GetTargetsBuilt() != 2 {
		t.Errorf("the build is %v", b)
	}
}

// TestTwoBuildsOfOneName publishes two builds with one invocation id at once. Neither stream ends the
// other, and the build that is written last has what its own stream said, and nothing else.
func TestTwoBuildsOfOneName(t *testing.T) {
	store := newStore(t, "")
	s := New(store, nil)
	one, two := open(t, s), open(t, s)
	two.build = "y"
	for n := range int64(5) {
		if ack, err := one.send(n+1, target(fmt.Sprintf("//one:%d", n), true)); ack != n+1 || err != nil {
			t.Fatalf("%d, %v", ack, err)
		}
	}
	for n := range int64(3) {
		if ack, err := two.send(n+1, target(fmt.Sprintf("//two:%d", n), n > 0)); ack != n+1 || err != nil {
			t.Fatalf("%d, %v", ack, err)
		}
	}
	if ack, err := one.send(6, finished); ack != 6 || err != nil {
		t.Fatalf("the first stream: %d, %v", ack, err)
	}
	if err := errors.Join(one.end(nil), two.end(nil)); err != nil {
		t.Error(err)
	}
	list := kept(t, store)
	if b := list[0].GetBuild(); len(list) != 1 || b.GetLastEvent() != 3 || b.GetTargetsBuilt() != 2 || b.GetTargetsFailed() != 1 {
		t.Errorf("%d builds, the last one: %v", len(list), b)
	}
}

// TestResumedForItsInstance resumes a build after a restart, when the event that says its instance
// name does not come again.
func TestResumedForItsInstance(t *testing.T) {
	store := newStore(t, "")
	c := open(t, New(store, nil))
	_, _ = c.send(1, &bazel.BuildEvent{Payload: &bazel.BuildEvent_OptionsParsed{OptionsParsed: &bazel.OptionsParsed{CmdLine: []string{instanceFlag + "team"}}}})
	_ = c.end(status.Error(codes.Unavailable, "the scheduler ends"))
	c = open(t, New(store, nil))
	_, _ = c.send(2, finished)
	_ = c.end(nil)
	if r := kept(t, store)[0]; r.GetInstanceName() != "team" || r.GetBuild().GetLastEvent() != 2 {
		t.Errorf("the build is for %q: %v", r.GetInstanceName(), r.GetBuild())
	}
}

// TestOwnBuildIsResumed resumes a build while others have published the same invocation, as a user
// whom the build tool reports, and under names that would be globs.
func TestOwnBuildIsResumed(t *testing.T) {
	store := newStore(t, "")
	s := New(store, nil)
	add := func(user, invocation, localUser string, last int64) {
		store.Add(&historypb.Record{
			User: user, Invocation: invocation, Ended: timestamppb.New(time.UnixMilli(1e12 + last)),
			Build: &historypb.Build{LastEvent: last, LocalUser: localUser},
		})
	}
	add("alice", "b-1", "", 1)
	add("al*", "b-1", "", 2)
	add("alice", "b-*", "", 3)
	add("mallory", "b-1", "alice", 4)
	add("mallory", "b-1", "al*", 5)
	add("alice", "b-2", "", 6)
	for k, want := range map[key]int64{
		{"alice", "b-1", "x"}: 1, {"al*", "b-1", "x"}: 2, {"alice", "b-*", "x"}: 3, {"mallory", "b-1", "x"}: 5, {"alice", "b-2", "x"}: 6, {"bob", "b-1", "x"}: 0,
	} {
		r := s.find(t.Context(), k)
		if got := r.GetBuild().GetLastEvent(); got != want || want > 0 && r.GetUser() != k.user {
			t.Errorf("%v resumes event %d of %q, want %d", k, got, r.GetUser(), want)
		}
	}
}

// TestFloodOfBuilds publishes many builds that use all the room that they may. Earlier builds must
// stay.
func TestFloodOfBuilds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := history.Open(t.TempDir(), history.Options{Keep: 14 * 24 * time.Hour, MaxBytes: 2 << 20})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); store.Run(ctx) }()
		store.Add(&historypb.Record{Operation: "operations/1", Ended: timestamppb.Now()})
		s, random := New(store, nil), rand.New(rand.NewPCG(1, 1))
		for i := range 300 {
			c := open(t, s)
			patterns := make([]string, 60)
			for j := range patterns {
				name := make([]byte, 250)
				for k := range name {
					name[k] = "0123456789abcdef"[random.IntN(16)]
				}
				patterns[j] = string(name)
			}
			id := &bazel.BuildEventId{Id: &bazel.BuildEventId_Pattern{Pattern: &bazel.BuildEventId_PatternExpandedId{Pattern: patterns}}}
			if _, err := c.sendAny(fmt.Sprint("flood-", i), 1, &publish.BuildEvent{
				Event: &publish.BuildEvent_BazelEvent{BazelEvent: packed(&bazel.BuildEvent{Id: id})},
			}); err != nil {
				t.Fatal(err)
			}
			if err := c.end(nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		found, _, err := store.Find(t.Context(), history.Query{Operation: "operations/1", Order: history.Latest, Limit: 1})
		if err != nil || len(found) != 1 {
			t.Errorf("of what ended before the flood %d records are left, %v", len(found), err)
		}
		if n := len(kept(t, store)); n < 50 {
			t.Errorf("%d builds of the flood are kept where half of the records is free", n)
		}
		stop()
		<-done
		_ = store.Close()
	})
}

// TestWrites has a build of many targets that runs for an hour. Its beginning must be found at once
// and its state soon, but its records must not grow faster than they may.
func TestWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t, "")
		c := open(t, New(store, nil))
		var written int64
		for n := range int64(3600) {
			if _, err := c.send(n+1, target(fmt.Sprintf("//%d:%s", n, strings.Repeat("x", 200)), true)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			b := kept(t, store)
			if len(b) != 1 {
				t.Fatalf("after %d s there are %d builds", n+1, len(b))
			}
			build := b[0].GetBuild()
			if behind := n + 1 - int64(build.GetTargetsBuilt()); behind > maxBuild/bytesPerSecond+1 || n < 10 && behind > 1 {
				t.Errorf("after %d s the last %d targets are not written", n+1, behind)
			}
			if build.GetLastEvent() == n+1 {
				written += int64(proto.Size(build))
			}
		}
		if written > 3600*bytesPerSecond*5/4 {
			t.Errorf("%d bytes are written in an hour", written)
		}
		_ = c.end(nil)
		if b := kept(t, store); len(b) != 1 || b[0].GetBuild().GetTargetsBuilt() != 3600 {
			t.Errorf("at the end there are %v", b)
		}
		_ = store.Close()
	})
}

// TestSchedulerThatIsKilled kills the scheduler a second after each kind of event that people look
// for, in a build whose record is so large that it is not written each second. The files must have
// the event.
func TestSchedulerThatIsKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		folder := t.TempDir()
		store := newStore(t, folder)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); store.Run(ctx) }()
		c := open(t, New(store, nil))
		n := int64(0)
		send := func(e *bazel.BuildEvent) {
			t.Helper()
			n++
			if _, err := c.send(n, e); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 100 {
			send(target(fmt.Sprintf("//%d:%s", i, strings.Repeat("x", 200)), true))
			time.Sleep(10 * time.Millisecond)
		}
		for name, c := range map[string]struct {
			event *bazel.BuildEvent
			has   func(*historypb.Build) bool
		}{
			"options": {
				&bazel.BuildEvent{Payload: &bazel.BuildEvent_OptionsParsed{OptionsParsed: &bazel.OptionsParsed{ExplicitCmdLine: []string{"--config=ci"}}}},
				func(b *historypb.Build) bool { return slices.Equal(b.GetOptions(), []string{"--config=ci"}) },
			},
			"a failed target": {
				target("//bad", false),
				func(b *historypb.Build) bool { return b.GetTargetsFailed() == 1 },
			},
			"a failed attempt": {
				result("//flaky", 1, bazel.TestStatus_FAILED),
				func(b *historypb.Build) bool {
					return slices.ContainsFunc(b.GetTests(), func(t *historypb.Build_Test) bool { return t.GetLabel() == "//flaky" })
				},
			},
			"a failed test": {
				summary("//bad_test", bazel.TestStatus_TIMEOUT),
				func(b *historypb.Build) bool { return b.GetTestsFailed() == 1 },
			},
			"an error": {
				&bazel.BuildEvent{Payload: &bazel.BuildEvent_Progress{Progress: &bazel.Progress{Stderr: "ERROR: no space"}}},
				func(b *historypb.Build) bool { return slices.Equal(b.GetErrors(), []string{"ERROR: no space"}) },
			},
			"a failed action": {
				&bazel.BuildEvent{Payload: &bazel.BuildEvent_Action{Action: &bazel.ActionExecuted{Type: "CppCompile", ExitCode: 1}}},
				func(b *historypb.Build) bool { return len(b.GetFailedActions()) == 1 },
			},
		} {
			send(c.event)
			time.Sleep(time.Second)
			synctest.Wait()
			killed := t.TempDir()
			if err := os.CopyFS(killed, os.DirFS(folder)); err != nil {
				t.Fatal(err)
			}
			left := newStore(t, killed)
			if b := kept(t, left); len(b) != 1 || !c.has(b[0].GetBuild()) {
				t.Errorf("a second after %s a killed scheduler has lost it", name)
			}
			_ = left.Close()
		}
		_ = c.end(nil)
		stop()
		<-done
		_ = store.Close()
	})
}
