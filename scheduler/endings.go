package scheduler

import (
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/finished"
	"github.com/forerunner-build/forerunner/scheduler/operation"
	"github.com/forerunner-build/forerunner/scheduler/operators"
)

// endings report the ends of operations and workers to all but clients: log, metrics, traces, and
// records.
type endings struct {
	log     *zap.Logger
	metrics *metrics
	tracing tracing
	peers   *peers
	lost    *operators.Lost
	records *finished.Recorder // nil: none are kept
}

// conclude handles the outcome of an event.
func (s *endings) conclude(out event.Out) {
	for i := range out.Notices {
		if st := &out.Notices[i]; st.Done() {
			s.finished(st)
		}
	}
	for i := range out.Left {
		s.finished(&out.Left[i])
	}
	for i := range out.Retries {
		s.retried(&out.Retries[i])
	}
	for i := range out.Taken {
		s.taken(&out.Taken[i])
	}
	for _, sus := range out.Suspensions {
		s.suspended(sus)
	}
	for _, gone := range out.Departures {
		s.departed(gone)
	}
}

// finished counts and logs the end of one operation.
func (s *endings) finished(st *event.Status) {
	end := outcome(st)
	s.metrics.finished.WithLabelValues(end).Inc()
	s.tracing.end(st, end)
	s.records.Add(st, operation.ExtrasOf(st.Operation).Note)
	fields := make([]zap.Field, 0, 12)
	fields = append(fields, zap.String("operation", st.Name),
		zap.String(names.ActionField, st.Digest.String()), zap.String(names.OutcomeField, end))
	if st.Instance != "" {
		fields = append(fields, zap.String("instance", st.Instance))
	}
	if st.Worker != "" {
		s.peers.ran(st.Worker, st.Operation)
		queued, ran := spans(st)
		if st.Queue != nil {
			s.metrics.queued.of(*st.Queue).Observe(queued.Seconds())
		}
		fields = append(append(fields, workerFields(st.Worker)...), zap.Int("attempts", st.Attempts),
			zap.Duration(names.QueuedField, queued), zap.Duration(names.RanField, ran))
	}
	if x := st.Response.GetResult().GetExitCode(); x != 0 {
		fields = append(fields, zap.Int32(names.ExitCodeField, x))
	}
	if e := st.Response.GetStatus(); e.GetCode() != 0 {
		fields = append(fields, zap.Stringer(names.CodeField, codes.Code(e.GetCode())), zap.String(names.ErrorField, e.GetMessage()))
	}
	if reused := operation.ExtrasOf(st.Operation).Reused; reused != "" {
		fields = append(fields, zap.String("reuse", "reused "+reused))
	}
	if r := &st.Request; *r != (request.Metadata{}) {
		fields = append(fields, zap.String("invocation", r.ToolInvocation),
			zap.String(names.TargetField, r.Target), zap.String(names.MnemonicField, r.Mnemonic))
	}
	s.log.Info(names.OperationFinished, fields...)
}

// retried counts and logs that a worker could not run an action, which runs elsewhere.
func (s *endings) retried(x *event.Retry) {
	s.log.Warn("a worker could not run an action, for no fault of the action: another worker runs it", append(s.countTaken(&x.Taken),
		zap.Stringer(names.CodeField, x.Code), zap.String(names.ErrorField, x.Message))...)
}

// taken counts and logs that a run was taken from its worker.
func (s *endings) taken(x *event.Taken) {
	fields := append(s.countTaken(x), zap.Stringer("reason", x.Why))
	if x.Why == event.Dropped {
		s.log.Warn("run taken from its worker, which no longer has it", fields...)
		return
	}
	s.log.Info("run taken from its worker", fields...)
}

// countTaken counts a run that was taken from its worker, and returns what identifies it in the
// log.
func (s *endings) countTaken(x *event.Taken) []zap.Field {
	s.metrics.returned.WithLabelValues(x.Why.Label()).Inc()
	return append([]zap.Field{zap.String("operation", x.Name), zap.String(names.ActionField, x.Digest.String())}, workerFields(x.Worker)...)
}

// suspended logs that a worker gets nothing for a while.
func (s *endings) suspended(x event.Suspension) {
	s.log.Warn("worker suspended: its actions fail and those of other workers do not; later it gets one action to try",
		zap.String(names.WorkerField, names.Pairs(x.ID)), zap.Int("failed_in_a_row", x.Row), zap.Int("failed_of_last_16", x.Failures),
		zap.String("last_action", x.Last), zap.Time("until", x.Until))
}

// departed logs the end of a worker.
func (s *endings) departed(d event.Departure) {
	s.peers.serves(d.Worker, "")
	if d.Drained {
		s.log.Debug("worker has left", workerFields(d.Worker)...)
		return
	}
	if s.lost.Add(time.Now(), d) {
		s.metrics.lost.Inc()
	}
	s.log.Warn("worker lost: it did not call in time",
		append(workerFields(d.Worker), zap.String("action", d.Action))...)
}

// workerFields name the worker with a key as patterns do, and its position, if it has several.
func workerFields(key string) []zap.Field {
	machine, position := names.Machine(key)
	fields := []zap.Field{zap.String(names.WorkerField, machine)}
	if position != "" {
		fields = append(fields, zap.String(names.PositionField, position))
	}
	return fields
}
