package worker

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// trace makes the spans of an action that has ended, one for each of its stages, below the
// scheduler's span. It does nothing without Options.Tracer.
func (a *action) trace(ctx context.Context, outcome, failure string) {
	tracer := a.w.opts.Tracer
	if tracer == nil {
		return
	}
	parent := propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier(a.task.desired.GetW3CTraceContext()))
	ctx, span := tracer.Start(parent, "action", trace.WithTimestamp(a.times.entered[stageAccept]),
		trace.WithSpanKind(trace.SpanKindConsumer))
	if span.IsRecording() {
		for s := range stages {
			from, to := a.times.entered[s], a.times.entered[s+1]
			if !from.Before(to) {
				continue
			}
			_, child := tracer.Start(ctx, stageNames[s], trace.WithTimestamp(from))
			child.End(trace.WithTimestamp(to))
		}
		span.SetAttributes(attribute.String("forerunner.action", a.digest.String()),
			attribute.String("forerunner.worker", workerName(a.p.id)), attribute.String("forerunner.outcome", outcome),
			attribute.Float64("forerunner.stall", a.last.stalled.Seconds()))
		if a.ahead != nil {
			f := a.ahead.Figures()
			span.SetAttributes(attribute.String("forerunner.profile", a.ahead.Origin().String()),
				attribute.Int64("forerunner.foreseen", f.Foreseen.Files), attribute.Int64("forerunner.late", f.Late.Files),
				attribute.Int64("forerunner.missed", f.Missed.Files), attribute.Int64("forerunner.local", f.Local.Files),
				attribute.Int64("forerunner.unused", f.Unused.Files))
		}
		if failure != "" {
			span.SetStatus(codes.Error, failure)
		}
	}
	span.End(trace.WithTimestamp(a.times.entered[stages]))
}
