package scheduler

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/operation"
)

// tracing makes spans of operations. Without a tracer it makes none.
type tracing struct{ tracer trace.Tracer }

// begin begins the span of an operation, below the client's span, and makes it the parent of the
// worker's spans. It does nothing without a tracer.
//
// Only this one span exists while the operation waits and runs; the others are made from the
// operation's times, at its end.
func (t tracing) begin(ctx context.Context, op *request.Operation) {
	if t.tracer == nil {
		return
	}
	var w3c propagation.TraceContext
	ctx, span := t.tracer.Start(w3c.Extract(ctx, propagation.MapCarrier(op.Trace)), "Execute",
		trace.WithSpanKind(trace.SpanKindServer))
	operation.AddExtras(op).Span = span
	if span.SpanContext().IsValid() {
		op.Trace = map[string]string{}
		w3c.Inject(ctx, propagation.MapCarrier(op.Trace))
	}
}

// refuseTrace ends the span of an operation that is not accepted.
func refuseTrace(op *request.Operation, err error) {
	if span := operation.ExtrasOf(op).Span; span != nil {
		span.SetStatus(otelcodes.Error, err.Error())
		span.End()
	}
}

// end ends the span of an operation that is done. the operation has an outcome.
func (t tracing) end(st *event.Status, outcome string) {
	span := operation.ExtrasOf(st.Operation).Span
	if span == nil {
		return
	}
	if !span.IsRecording() {
		span.End()
		return
	}
	ctx := trace.ContextWithSpan(context.Background(), span) // for the parent alone
	part := func(name string, from, to trace.SpanEventOption, attributes ...attribute.KeyValue) {
		_, child := t.tracer.Start(ctx, name, from, trace.WithAttributes(attributes...))
		child.End(to)
	}
	if st.Worker != "" {
		queued, _ := spans(st)
		part("queue", trace.WithTimestamp(st.Queued), trace.WithTimestamp(st.Queued.Add(queued)))
		part("run", trace.WithTimestamp(st.Started), trace.WithTimestamp(st.Ended),
			attribute.String("forerunner.worker", st.Worker), attribute.Int("forerunner.attempts", st.Attempts))
	}
	span.SetAttributes(
		attribute.String("forerunner.operation", st.Name), attribute.String("forerunner.action", st.Digest.String()),
		attribute.String("forerunner.instance", st.Instance), attribute.String("forerunner.outcome", outcome),
		attribute.String("forerunner.invocation", st.Request.ToolInvocation),
		attribute.String("forerunner.target", st.Request.Target),
		attribute.String("forerunner.mnemonic", st.Request.Mnemonic),
	)
	if outcome == "error" {
		span.SetStatus(otelcodes.Error, st.Response.GetStatus().GetMessage())
	}
	span.End(trace.WithTimestamp(st.Ended))
}

// spans returns how long an operation waited and how long its last run took. An operation that
// joined a run has not waited.
func spans(s *event.Status) (queued, ran time.Duration) {
	return max(s.Started.Sub(s.Queued), 0), s.Ended.Sub(s.Started)
}
