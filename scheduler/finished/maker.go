package finished

import (
	"context"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

const (
	// patience limits the read of a command: it is the least that one may take, and half of the
	// most.
	patience = 500 * time.Millisecond
	// maxCommandBytes limits the size of a command.
	maxCommandBytes = 256 << 10
)

// A maker makes records, one after another in the same memory: garbage of records slows down
// dispatch more than making them.
type maker struct {
	*Recorder
	batch []ended

	record                 historypb.Record
	queued, started, ended timestamppb.Timestamp
	metadata               repb.ExecutedActionMetadata
	stdout, stderr         historypb.Stream
	outputs                [maxOutputs]historypb.Output
	arguments              arguments
	digests                digests

	// reading is the context of reads of commands since began.
	reading context.Context
	began   time.Time
	cancel  context.CancelFunc
}

func newMaker(r *Recorder) *maker { return &maker{Recorder: r, cancel: func() {}} }

// close frees what the maker uses.
func (m *maker) close() { m.cancel() }

// makeAll makes the records of all queued operations.
func (m *maker) makeAll(ctx context.Context) {
	for {
		m.batch = m.waiting.take(m.batch)
		if len(m.batch) == 0 {
			m.caughtUp()
			return
		}
		for i := range m.batch {
			e := &m.batch[i]
			m.make(ctx, e)
			m.waiting.made(e)
			*e = ended{}
		}
	}
}

func (m *maker) make(ctx context.Context, e *ended) {
	r := m.recordOf(&e.Status)
	if e.note != "" {
		r.Message = strings.TrimPrefix(r.GetMessage()+"\n"+e.note, "\n")
	}
	if e.Action != nil {
		m.addCommand(ctx, &e.Status)
	}
	m.options.Store.Add(r)
}

// addCommand adds the command line. Where storage is slow, actions that succeeded or were cancelled
// have none.
func (m *maker) addCommand(ctx context.Context, st *event.Status) {
	fn, r := st.Digest.Function(), &m.record
	if command, ok := m.sent.take(st.Name); ok {
		r.Command = m.digests.text(st.Action.GetCommandDigest())
		r.Arguments, r.ArgumentsCut = m.arguments.of(command, maxArguments)
		return
	}
	d, err := digest.FromProto(fn, st.Action.GetCommandDigest())
	if err != nil {
		return
	}
	r.Command = d.String()
	usual := r.GetOutcome() == historypb.Outcome_SUCCEEDED || r.GetOutcome() == historypb.Outcome_CANCELLED
	if m.options.Blobs == nil || d.SizeBytes() > maxCommandBytes || usual && m.waiting.length() > maxWaiting/8 || ctx.Err() != nil {
		return
	}
	if b, err := m.options.Blobs(st.Instance, fn).Read(m.patient(ctx), d); err == nil {
		r.Arguments, r.ArgumentsCut = m.arguments.of(b, maxArguments)
	}
}

// patient returns a context that ends between one and two patiences from now. Reads share it,
// because a timer for each costs as much as the read of a local one.
func (m *maker) patient(ctx context.Context) context.Context {
	if now := time.Now(); m.reading == nil || m.reading.Err() != nil || now.Sub(m.began) > patience {
		m.cancel()
		m.reading, m.cancel = context.WithTimeout(ctx, 2*patience)
		m.began = now
	}
	return m.reading
}
