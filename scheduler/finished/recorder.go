package finished

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/operation"
)

const (
	// maxWaiting limits the drafts that wait for their commands, and mostWaiting their memory, which
	// is one part in waitingParts of the program's. With more than one part in usualParts of
	// maxWaiting, those of usual ends do not wait.
	maxWaiting                = 16 << 10
	mostWaiting, waitingParts = 64 << 20, 32
	usualParts                = 8
	// draftBytes is the approximate memory of a draft beside its encoding.
	draftBytes = 512
	// searches is how many searches are made at once.
	searches = 2
	// readers is how many commands are read at once.
	readers = 4
)

// Blobs is a storage. Read returns all bytes of a blob.
type Blobs interface {
	Read(ctx context.Context, d digest.Digest) ([]byte, error)
}

// Options are the options of a Recorder.
type Options struct {
	Store *history.Store
	// Blobs returns the storage of an instance name, which has the command lines; nil: records have
	// none.
	Blobs func(instance string, fn digest.Function) Blobs
	// Memory is the memory limit of the program; 0: no limit.
	Memory int64
}

// A Recorder makes records. A nil Recorder makes none, and has none.
type Recorder struct {
	options  Options
	drafts   sync.Pool // of *draft
	waiting  *queue
	sent     *commands
	searches *intake.Turns
}

// New returns a Recorder, which makes records while Run runs.
func New(o Options) *Recorder {
	most := int64(mostWaiting)
	if o.Memory > 0 {
		most = min(most, o.Memory/waitingParts)
	}
	return &Recorder{
		options: o, drafts: sync.Pool{New: func() any { return new(draft) }},
		waiting: newQueue(most), sent: newCommands(o.Memory), searches: intake.NewTurns(searches),
	}
}

// Sent tells it the encoded Command of an operation, which a worker gets with its action. It must
// not change any more.
func (r *Recorder) Sent(op *request.Operation, command []byte) {
	if r != nil && len(command) > 0 && len(command) <= maxCommandBytes {
		r.sent.keep(operation.ExtrasOf(op).Sent, command)
	}
}

// Add makes a record of a completed operation. It does not block. A record whose command line must
// be read from the storage waits for that; if too many wait it has none.
func (r *Recorder) Add(st *event.Status, note string) {
	if r == nil {
		return
	}
	d := r.drafts.Get().(*draft)
	d.write(st, note)
	missing := d.command(st, r.sent)
	if missing == (digest.Digest{}) || r.options.Blobs == nil || !r.waiting.add(unread{draft: d, instance: st.Instance, command: missing}) {
		r.keep(d)
	}
}

// keep stores a record, whose memory is used again.
func (r *Recorder) keep(d *draft) {
	r.options.Store.AddEncoded(&d.row, d.wire.item())
	d.row = history.Row{}
	r.drafts.Put(d)
}

// Run stores records until ctx ends, and then those whose commands are not read yet.
func (r *Recorder) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			ticker := time.NewTicker(every)
			defer ticker.Stop()
			reads := newReader(r)
			defer reads.close()
			for {
				select {
				case <-r.waiting.many:
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
				reads.readAll(ctx)
			}
		})
	}
	r.options.Store.Run(ctx)
	all.Wait()
	newReader(r).readAll(ctx)
	r.options.Store.Flush()
}

// Lost returns how many records were dropped because the disk was too slow.
func (r *Recorder) Lost() uint64 { return r.options.Store.Stats().Lost }

// Collectors returns the metrics of a Recorder.
func (r *Recorder) Collectors() []prometheus.Collector {
	stats := r.options.Store.Stats
	return []prometheus.Collector{
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "forerunner_scheduler_records_lost_total",
			Help: "Records that were not written, because the disk was too slow or failed, or a caller published too many builds.",
		}, func() float64 { return float64(r.Lost()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "forerunner_scheduler_records", Help: "Records of completed operations.",
		}, func() float64 { return float64(stats().Records) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "forerunner_scheduler_records_bytes", Help: "Bytes of records of completed operations and of their index, on the disk and in memory.",
		}, func() float64 { return float64(stats().Bytes) }),
	}
}
