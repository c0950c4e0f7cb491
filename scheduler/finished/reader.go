package finished

import (
	"context"
	"time"
)

// patience limits the read of a command: it is the least that one may take, and half of the most.
const patience = 500 * time.Millisecond

// A reader reads the commands of drafts, one after another.
type reader struct {
	*Recorder
	batch []unread

	// reading is the context of reads of commands since began.
	reading context.Context
	began   time.Time
	cancel  context.CancelFunc
}

func newReader(r *Recorder) *reader { return &reader{Recorder: r, cancel: func() {}} }

// close frees what the reader uses.
func (r *reader) close() { r.cancel() }

// readAll finishes all drafts that wait. Without time they have no command lines.
func (r *reader) readAll(ctx context.Context) {
	for {
		r.batch = r.waiting.take(r.batch)
		if len(r.batch) == 0 {
			return
		}
		for i := range r.batch {
			u := &r.batch[i]
			if ctx.Err() == nil {
				if b, err := r.options.Blobs(u.instance, u.command.Function()).Read(r.patient(ctx), u.command); err == nil {
					u.draft.arguments(b)
				}
			}
			r.waiting.taken(u)
			r.keep(u.draft)
			*u = unread{}
		}
	}
}

// patient returns a context that ends between one and two patiences from now. Reads share it,
// because a timer for each costs as much as the read of a local one.
func (r *reader) patient(ctx context.Context) context.Context {
	if now := time.Now(); r.reading == nil || r.reading.Err() != nil || now.Sub(r.began) > patience {
		r.cancel()
		r.reading, r.cancel = context.WithTimeout(ctx, 2*patience)
		r.began = now
	}
	return r.reading
}
