package scheduler

import (
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/scheduler/core"
)

// endings tell all who want to know, but clients, of operations and workers that have ended: log, metrics, traces, and who
// remembers them.
type endings struct {
	log        *zap.Logger
	metrics    *metrics
	tracing    tracing
	neighbours *neighbours
	lost       *lostWorkers
}

// conclude takes what an event came to.
func (s *endings) conclude(out core.Out) {
	for i := range out.Notices {
		if st := &out.Notices[i]; st.Done() {
			s.finished(st)
		}
	}
	for _, gone := range out.Departures {
		s.departed(gone)
	}
}

// finished counts and logs the end of one operation.
func (s *endings) finished(st *core.Status) {
	end := outcome(st)
	s.metrics.finished.WithLabelValues(end).Inc()
	s.tracing.end(st, end)
	fields := make([]zap.Field, 0, 12)
	fields = append(fields, zap.String("operation", st.Name),
		zap.String("action", st.Digest.String()), zap.String("outcome", end))
	if st.Instance != "" {
		fields = append(fields, zap.String("instance", st.Instance))
	}
	if st.Worker != "" {
		s.neighbours.ran(st.Worker, st.Operation)
		queued, ran := spans(st)
		if st.Queue != nil {
			s.metrics.queued.of(*st.Queue).Observe(queued.Seconds())
		}
		fields = append(fields, zap.String("worker", st.Worker), zap.Int("attempts", st.Attempts),
			zap.Duration("queued", queued), zap.Duration("ran", ran))
	}
	if x := st.Response.GetResult().GetExitCode(); x != 0 {
		fields = append(fields, zap.Int32("exit_code", x))
	}
	if e := st.Response.GetStatus(); e.GetCode() != 0 {
		fields = append(fields, zap.Stringer("code", codes.Code(e.GetCode())), zap.String("error", e.GetMessage()))
	}
	if r := &st.Request; *r != (core.Metadata{}) {
		fields = append(fields, zap.String("invocation", r.ToolInvocation),
			zap.String("target", r.Target), zap.String("mnemonic", r.Mnemonic))
	}
	s.log.Info("operation finished", fields...)
}

// departed logs the end of a worker.
func (s *endings) departed(d core.Departure) {
	s.neighbours.serves(d.Worker, "")
	if d.Drained {
		s.log.Debug("worker has left", zap.String("worker", d.Worker))
		return
	}
	s.metrics.lost.Inc()
	s.lost.add(time.Now(), d)
	s.log.Warn("worker lost: it did not call in time",
		zap.String("worker", d.Worker), zap.String("action", d.Action))
}

// maxLost is how many workers that were lost are remembered.
const maxLost = 100

// A lostWorkers remembers workers that stopped calling without having drained. Zero is ready for
// use; mu is taken without any other lock.
type lostWorkers struct {
	mu    sync.Mutex
	total int64
	last  []*admin.LostWorker // the latest last; none is changed
}

func (l *lostWorkers) add(now time.Time, d core.Departure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total++
	if len(l.last) == maxLost {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.last = append(l.last, &admin.LostWorker{Identity: d.ID, At: timestamppb.New(now), Action: d.Action})
}

func (l *lostWorkers) count() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// list returns the latest first.
func (l *lostWorkers) list() []*admin.LostWorker {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := slices.Clone(l.last)
	slices.Reverse(list)
	return list
}
