package finished

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

const (
	// maxWaiting limits the queued operations, and mostWaiting their memory, which is one part in
	// waitingParts of the program's.
	maxWaiting                = 16 << 10
	mostWaiting, waitingParts = 64 << 20, 32
	// searches is how many searches are made at once.
	searches = 2
	// makers is how many records are made at once: some wait for the storage.
	makers = 4
	// statusBytes and outputBytes are the approximate memory of an operation's status, and of an
	// output in it.
	statusBytes, outputBytes = 2 << 10, 512
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
	Logger *zap.Logger
}

// A Recorder makes records. A nil Recorder makes none, and has none.
type Recorder struct {
	options  Options
	waiting  *queue
	sent     *commands
	searches *intake.Turns
	lost     atomic.Uint64
	// losing: there was no room for an operation, which was logged, and some still wait.
	losing atomic.Bool
}

// New returns a Recorder, which makes records while Run runs.
func New(o Options) *Recorder {
	most := int64(mostWaiting)
	if o.Memory > 0 {
		most = min(most, o.Memory/waitingParts)
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return &Recorder{options: o, waiting: newQueue(most), sent: newCommands(o.Memory), searches: intake.NewTurns(searches)}
}

// Sent tells it the encoded Command of an operation, which a worker gets with its action. It must
// not change any more.
func (r *Recorder) Sent(operation string, command []byte) {
	if r != nil && len(command) <= maxCommandBytes {
		r.sent.add(operation, command)
	}
}

// Add queues a record of a completed operation. It does not block.
func (r *Recorder) Add(st *event.Status, note string) {
	if r == nil {
		return
	}
	if r.waiting.add(ended{*st, note, bytesOf(st)}) {
		return
	}
	r.lost.Add(1)
	if !r.losing.Swap(true) {
		r.options.Logger.Warn("records of completed operations are lost: they end faster than their records are made")
	}
}

// caughtUp tells the log the end of losses: no operation waits.
func (r *Recorder) caughtUp() {
	if r.losing.Load() && r.losing.Swap(false) {
		r.options.Logger.Info("records of completed operations are made in time again", zap.Uint64("lost_since_start", r.lost.Load()))
	}
}

// bytesOf is the approximate memory of an operation's status, besides memory that the scheduler
// uses for it anyway.
func bytesOf(st *event.Status) int64 {
	result := st.Response.GetResult()
	outputs := len(result.GetOutputFiles()) + len(result.GetOutputDirectories()) + len(result.GetOutputSymlinks())
	inline := len(result.GetStdoutRaw()) + len(result.GetStderrRaw())
	for _, f := range result.GetOutputFiles() {
		inline += len(f.GetContents())
	}
	return int64(statusBytes + outputBytes*outputs + inline)
}

// Run makes records until ctx ends, and then those of queued operations.
func (r *Recorder) Run(ctx context.Context) {
	var all sync.WaitGroup
	for range makers {
		all.Go(func() {
			ticker := time.NewTicker(every)
			defer ticker.Stop()
			m := newMaker(r)
			defer m.close()
			for {
				select {
				case <-r.waiting.many:
				case <-ticker.C:
				case <-ctx.Done():
					return
				}
				m.makeAll(ctx)
			}
		})
	}
	r.options.Store.Run(ctx)
	all.Wait()
	last := newMaker(r)
	defer last.close()
	last.makeAll(ctx)
	r.options.Store.Flush()
}

// Lost returns how many records were dropped because the disk or the Recorder was too slow.
func (r *Recorder) Lost() uint64 { return r.lost.Load() + r.options.Store.Stats().Lost }

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
			Name: "forerunner_scheduler_records_bytes", Help: "Bytes of records of completed operations.",
		}, func() float64 { return float64(stats().Bytes) }),
	}
}
