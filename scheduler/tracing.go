package scheduler

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/forerunner-build/forerunner/scheduler/core"
)

// beginTrace begins the span of an operation, below what the client traces, and has those of
// the worker belong to it. It does nothing without ServerOptions.Tracer.
//
// Only this one span is there while the operation waits and runs; the others are made of the
// operation's times, at its end.
func (s *Server) beginTrace(ctx context.Context, op *core.Operation) {
	if s.options.Tracer == nil {
		return
	}
	var w3c propagation.TraceContext
	ctx, span := s.options.Tracer.Start(w3c.Extract(ctx, propagation.MapCarrier(op.Trace)), "Execute",
		trace.WithSpanKind(trace.SpanKindServer))
	addExtras(op).span = span
	if span.SpanContext().IsValid() {
		op.Trace = map[string]string{}
		w3c.Inject(ctx, propagation.MapCarrier(op.Trace))
	}
}

// refuseTrace ends the span of an operation that is not accepted.
func refuseTrace(op *core.Operation, err error) {
	if span := extrasOf(op).span; span != nil {
		span.SetStatus(otelcodes.Error, err.Error())
		span.End()
	}
}

// endTrace ends the span of an operation that is done. end is its outcome.
func (s *Server) endTrace(st *core.Status, end string) {
	span := extrasOf(st.Operation).span
	if span == nil {
		return
	}
	if !span.IsRecording() {
		span.End()
		return
	}
	ctx := trace.ContextWithSpan(context.Background(), span) // for the parent alone
	part := func(name string, from, to trace.SpanEventOption, attributes ...attribute.KeyValue) {
		_, child := s.options.Tracer.Start(ctx, name, from, trace.WithAttributes(attributes...))
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
		attribute.String("forerunner.instance", st.Instance), attribute.String("forerunner.outcome", end),
		attribute.String("forerunner.invocation", st.Request.ToolInvocation),
		attribute.String("forerunner.target", st.Request.Target),
		attribute.String("forerunner.mnemonic", st.Request.Mnemonic),
	)
	if end == "error" {
		span.SetStatus(otelcodes.Error, st.Response.GetStatus().GetMessage())
	}
	span.End(trace.WithTimestamp(st.Ended))
}
