package finished

import (
	"context"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
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

	wire wire
	row  history.Row

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
	m.write(&e.Status, e.note)
	if e.Action != nil {
		m.addCommand(ctx, &e.Status)
	}
	m.options.Store.AddEncoded(&m.row, m.wire.item())
}

// addCommand adds the command line. Where storage is slow, actions that succeeded or were cancelled
// have none.
func (m *maker) addCommand(ctx context.Context, st *event.Status) {
	fn, w := st.Digest.Function(), &m.wire
	if command, ok := m.sent.take(st.Name); ok {
		w.digest(commandField, st.Action.GetCommandDigest())
		w.arguments(command, maxArguments)
		return
	}
	d, err := digest.FromProto(fn, st.Action.GetCommandDigest())
	if err != nil {
		return
	}
	w.ownDigest(commandField, d)
	usual := m.row.Outcome == historypb.Outcome_SUCCEEDED || m.row.Outcome == historypb.Outcome_CANCELLED
	if m.options.Blobs == nil || d.SizeBytes() > maxCommandBytes || usual && m.waiting.length() > maxWaiting/8 || ctx.Err() != nil {
		return
	}
	if b, err := m.options.Blobs(st.Instance, fn).Read(m.patient(ctx), d); err == nil {
		w.arguments(b, maxArguments)
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
