package journal

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/record"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
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
	errTooSlow = errors.New("events arrive faster than they can be written")
	errTooLong = errors.New("the recording is as long as it may be")
	errEnded   = errors.New("the recording has ended")
)

// A Journal records the events of one core.State, so that Replay can rebuild the same State. It
// never delays the caller: events are buffered in memory, and Run writes them. If the writer is too
// slow, the recording ends; earlier events stay intact. A nil Journal records nothing.
type Journal struct {
	// These belong to Run.
	w              *bufio.Writer
	limit, written int64
	// maxPending is less in tests.
	maxPending int

	// These belong to the caller of State.
	last    time.Time
	answers answers

	wake chan struct{}

	mu      sync.Mutex
	pending []noted // guarded by mu
	ended   error   // why no more is taken; guarded by mu
}

// A noted event is a buffered one. It owns response; the writer extracts the necessary parts,
// because that takes longer than buffering.
type noted struct {
	event    *record.Event
	response *repb.ExecuteResponse
}

// New returns a Journal that writes to w until it has written limit bytes. It is for one State
// only.
func New(w io.Writer, limit int64) *Journal {
	return &Journal{w: bufio.NewWriterSize(w, 1<<16), limit: limit, maxPending: maxPending, wake: make(chan struct{}, 1)}
}

// Run writes until ctx ends, and then the rest. Its error is the writer's, or says why the
// recording is incomplete.
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

// write encodes pending events into the buffer.
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

// Start begins the recording of a State before its first event.
func (j *Journal) Start(now time.Time, s *core.State) error {
	if j == nil {
		return nil
	}
	config, err := json.Marshal(s.Config())
	if err != nil {
		return fmt.Errorf("record configuration: %w", err)
	}
	j.last, j.answers = now, newAnswers(now)
	j.note(now, noted{event: &record.Event{Kind: &record.Event_Start{
		Start: &record.Start{At: timestamppb.New(now), Config: config},
	}}})
	return nil
}

// Event records an event before State gets it.
func (j *Journal) Event(now time.Time, e event.Event) {
	if j != nil && !j.answers.closed() {
		j.note(now, encode(e))
	}
}

// Answer records State's answer to it.
func (j *Journal) Answer(out event.Out) {
	if j != nil && !j.answers.closed() {
		j.answers.add(out)
	}
}

// End ends the recording with the present state of State.
func (j *Journal) End(now time.Time, s *core.State) {
	if j == nil || j.answers.closed() {
		return
	}
	j.note(now, noted{event: &record.Event{Kind: &record.Event_End{End: &record.End{State: j.answers.describe(s)}}}})
	j.answers = answers{}
}
