package finished

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/intake"
	historypb "github.com/forerunner-build/forerunner/proto/history"
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
	// commandTimeout limits the read of a command, and maxCommandBytes its size.
	commandTimeout = time.Second
	// statusBytes and outputBytes are the approximate memory of an operation's status, and of an
	// output in it.
	statusBytes, outputBytes = 2 << 10, 512
	maxCommandBytes          = 256 << 10
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
	options Options
	waiting chan ended
	// most and bytes are the memory of queued operations: the limit, and in use.
	most     int64
	bytes    atomic.Int64
	lost     atomic.Uint64
	searches *intake.Turns
}

type ended struct {
	event.Status
	note  string // additional text for the client
	bytes int64
}

// New returns a Recorder, which makes records while Run runs.
func New(o Options) *Recorder {
	most := int64(mostWaiting)
	if o.Memory > 0 {
		most = min(most, o.Memory/waitingParts)
	}
	return &Recorder{options: o, waiting: make(chan ended, maxWaiting), most: most, searches: intake.NewTurns(searches)}
}

// Add queues a record of a completed operation. It does not block.
func (r *Recorder) Add(st *event.Status, note string) {
	if r == nil {
		return
	}
	e := ended{*st, note, bytesOf(st)}
	if r.bytes.Add(e.bytes) <= r.most {
		select {
		case r.waiting <- e:
			return
		default:
		}
	}
	r.bytes.Add(-e.bytes)
	r.lost.Add(1)
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
			for {
				select {
				case e := <-r.waiting:
					r.make(ctx, e)
				case <-ctx.Done():
					return
				}
			}
		})
	}
	r.options.Store.Run(ctx)
	all.Wait()
	for {
		select {
		case e := <-r.waiting:
			r.make(ctx, e)
		default:
			r.options.Store.Flush()
			return
		}
	}
}

func (r *Recorder) make(ctx context.Context, e ended) {
	defer r.bytes.Add(-e.bytes)
	m := recordOf(&e.Status)
	if e.note != "" {
		m.Message = strings.TrimPrefix(m.GetMessage()+"\n"+e.note, "\n")
	}
	if e.Action != nil {
		r.addCommand(ctx, m, &e.Status)
	}
	r.options.Store.Add(m)
}

// addCommand adds the command line. Where storage is slow, actions that succeeded or were cancelled
// have none.
func (r *Recorder) addCommand(ctx context.Context, m *historypb.Record, st *event.Status) {
	fn := st.Digest.Function()
	d, err := digest.FromProto(fn, st.Action.GetCommandDigest())
	if err != nil {
		return
	}
	m.Command = d.String()
	usual := m.GetOutcome() == historypb.Outcome_SUCCEEDED || m.GetOutcome() == historypb.Outcome_CANCELLED
	if r.options.Blobs == nil || d.SizeBytes() > maxCommandBytes || usual && len(r.waiting) > maxWaiting/8 || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	command := &repb.Command{}
	b, err := r.options.Blobs(st.Instance, fn).Read(ctx, d)
	if err == nil && proto.Unmarshal(b, command) == nil {
		m.Arguments, m.ArgumentsCut = cut(command.GetArguments(), maxArguments)
	}
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
