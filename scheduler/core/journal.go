package core

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/record"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

const (
	// maxPending bounds the events that wait to be written. When there are more,
	// the disk is too slow, and the recording ends.
	maxPending = 1 << 16
	// flushEvery is how long an event may wait for others before it is written.
	flushEvery = time.Second
)

// Why nothing more is taken down.
var (
	errTooSlow = errors.New("events come faster than they can be written")
	errTooLong = errors.New("the recording is as long as it may be")
	errEnded   = errors.New("the recording has ended")
)

// A Journal takes down the events of one State, so that Replay can make the same
// State of them again. It never delays the State: events are put into memory, and
// Run writes them. What it cannot keep up with ends the recording, with what came
// before intact. A nil Journal takes nothing down.
type Journal struct {
	// These belong to Run.
	w              *bufio.Writer
	limit, written int64
	// maxPending is less in tests.
	maxPending int

	// These belong to the caller of State.
	start, last time.Time
	answers     hash.Hash64

	wake chan struct{}

	mu      sync.Mutex
	pending []noted // guarded by mu
	ended   error   // why no more is taken; guarded by mu
}

// A noted event is one that waits to be written. Of response, which belongs to it,
// the writer takes what is needed: that takes longer than to note it.
type noted struct {
	event    *record.Event
	response *repb.ExecuteResponse
}

// NewJournal returns a Journal that writes to w until it has written limit bytes. It
// goes with one State only.
func NewJournal(w io.Writer, limit int64) *Journal {
	return &Journal{w: bufio.NewWriterSize(w, 1<<16), limit: limit, maxPending: maxPending, answers: fnv.New64a(), wake: make(chan struct{}, 1)}
}

// Run writes until ctx ends, and then what is left. Its error is the writer's, or
// says why the recording is not whole.
func (j *Journal) Run(ctx context.Context) error {
	flush := time.NewTicker(flushEvery)
	defer flush.Stop()
	for {
		done := ctx.Err() != nil
		if err := j.write(); err != nil {
			j.end(err)
			return errors.Join(fmt.Errorf("record events: %w", err), j.w.Flush())
		}
		if done {
			j.end(errEnded)
			return j.w.Flush()
		}
		select {
		case <-ctx.Done():
		case <-j.wake:
		case <-flush.C:
			if err := j.w.Flush(); err != nil {
				j.end(err)
				return fmt.Errorf("record events: %w", err)
			}
		}
	}
}

// write takes what is pending into the buffer.
func (j *Journal) write() error {
	j.mu.Lock()
	events, ended := j.pending, j.ended
	j.pending = nil
	j.mu.Unlock()
	for _, e := range events {
		if e.response != nil {
			e.event.GetSync().Response = essence(e.response)
		}
		n, err := protodelim.MarshalTo(j.w, e.event)
		if err != nil {
			return err
		}
		if j.written += int64(n); j.written > j.limit {
			return errTooLong
		}
	}
	if errors.Is(ended, errEnded) {
		return nil
	}
	return ended
}

// end makes the Journal take nothing more.
func (j *Journal) end(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended == nil {
		j.ended = err
	}
	j.pending = nil
}

// essence returns what State sees of a response.
func essence(r *repb.ExecuteResponse) *record.Response {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(r) // it has come over the wire
	h := fnv.New64a()
	_, _ = h.Write(b)
	return &record.Response{
		HasResult: r.GetResult() != nil, ExitCode: r.GetResult().GetExitCode(),
		Code: r.GetStatus().GetCode(), Message: r.GetStatus().GetMessage(), Hash: h.Sum64(),
	}
}

// note takes down an event. Its times are differences of now, which the setting of
// a clock does not change.
func (j *Journal) note(now time.Time, e noted) {
	e.event.DeltaNs = int64(now.Sub(j.last))
	j.last = now
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended != nil {
		return
	}
	if len(j.pending) >= j.maxPending {
		j.ended = errTooSlow
		return
	}
	j.pending = append(j.pending, e)
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// answer adds what State answers to a sum by which to tell whether another one
// answers the same.
func (j *Journal) answer(out Out) {
	if j == nil {
		return
	}
	var b []byte
	for _, r := range out.Replies {
		b = binary.AppendUvarint(b, r.Call)
		b = append(b, byte(r.Do))
		b = binary.AppendVarint(b, int64(r.NextSync.Sub(j.start)))
		if r.Run != nil {
			b = append(b, r.Run.Name...)
		}
	}
	for _, st := range out.Notices {
		b = append(b, st.Name...)
		b = binary.AppendUvarint(b, st.Rev)
		b = append(b, byte(st.Stage))
	}
	_, _ = j.answers.Write(b)
}

// Record has j take down the events of a State that has had none yet.
func (s *State) Record(now time.Time, j *Journal) error {
	config, err := json.Marshal(s.cfg)
	if err != nil {
		return fmt.Errorf("record configuration: %w", err)
	}
	j.start, j.last, s.journal = now, now, j
	j.note(now, noted{event: &record.Event{Kind: &record.Event_Start{
		Start: &record.Start{At: timestamppb.New(now), Config: config},
	}}})
	return nil
}

// EndRecord ends what Record began, with what State knows now.
func (s *State) EndRecord(now time.Time) {
	if s.journal != nil {
		s.journal.note(now, noted{event: &record.Event{Kind: &record.Event_End{End: &record.End{State: s.Dump()}}}})
		s.journal = nil
	}
}

func (j *Journal) submit(now time.Time, op *Operation) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_Submit{Submit: op.record()}}})
	}
}

func (j *Journal) restore(now time.Time, h Held) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_Held{Held: h.Record()}}})
	}
}

// record is as much of an operation as decides what State does.
func (op *Operation) record() *record.Submit {
	return &record.Submit{
		Name: op.Name, Instance: op.Instance, Digest: op.Digest.Proto(), Function: op.Digest.Function().Proto(),
		Platform: op.Platform.Proto(), Private: op.Private, Client: op.Client, Request: op.Request.message(),
		Priority: op.Priority, ExpectedNs: int64(op.Expected), User: op.User, Claims: op.Claims,
		SizeClass: op.Size.Class, SizeTimeoutNs: int64(op.Size.Timeout), SizeExpectedNs: int64(op.Size.Expected),
		SizeHedge: op.Size.Hedge,
	}
}

// Record is as much of h as decides what State does.
func (h Held) Record() *record.Held {
	return &record.Held{
		Operation: h.Operation.record(), Queued: timestamppb.New(h.Queued), Started: timestamppb.New(h.Started), Attempts: int32(h.Attempts),
		Worker: h.Worker, Id: h.ID, Prefix: h.Prefix, Platform: h.WorkerPlatform.Proto(), SizeClass: h.SizeClass,
	}
}

func (j *Journal) sync(now time.Time, r Report) {
	if j == nil {
		return
	}
	j.note(now, noted{event: &record.Event{Kind: &record.Event_Sync{Sync: &record.Sync{
		Call: r.Call, Worker: r.Worker, Id: r.ID, Connection: r.Connection, Prefix: r.Prefix,
		Platform: r.Platform.Proto(), SizeClass: r.SizeClass, Doing: uint32(r.Doing), Action: actionOf(r.Action).String(),
		PreferIdle: r.PreferIdle, Uploading: r.Uploading, Running: r.Running,
	}}}, response: r.Response})
}

func (j *Journal) attach(now time.Time, name string) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_Attach{Attach: name}}})
	}
}

func (j *Journal) detach(now time.Time, name string) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_Detach{Detach: name}}})
	}
}

func (j *Journal) cancel(now time.Time, name string) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_Cancel{Cancel: name}}})
	}
}

func (j *Journal) hangup(now time.Time, worker string, call uint64) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_Hangup{Hangup: &record.Hangup{Worker: worker, Call: call}}}})
	}
}

func (j *Journal) tick(now time.Time) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_Tick{Tick: &record.Tick{}}}})
	}
}

func (j *Journal) disconnect(now time.Time, connection uint64) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_Disconnect{Disconnect: connection}}})
	}
}

func (j *Journal) drain(now time.Time, p Pattern) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_Drain{Drain: &record.Pattern{Attributes: p.Map()}}}})
	}
}

func (j *Journal) undrain(now time.Time, p Pattern) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_Undrain{Undrain: &record.Pattern{Attributes: p.Map()}}}})
	}
}

func (j *Journal) putQuota(now time.Time, k QuotaKey, q quota.Quota, preempt bool) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_PutQuota{PutQuota: &record.PutQuota{
			Cohort: k.Cohort, Instance: k.Instance, Min: q.Min, Max: q.Max, Preempt: preempt,
		}}}})
	}
}

func (j *Journal) deleteQuota(now time.Time, k QuotaKey) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_DeleteQuota{
			DeleteQuota: &record.DeleteQuota{Cohort: k.Cohort, Instance: k.Instance},
		}}})
	}
}

func (j *Journal) kill(now time.Time, names []string, reason string) {
	if j != nil {
		j.note(now, noted{event: &record.Event{Kind: &record.Event_Kill{Kill: &record.Kill{Names: names, Reason: reason}}}})
	}
}
