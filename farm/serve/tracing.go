package serve

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/settings"
)

const (
	// maxSpans bounds the spans that wait to be sent; those beyond are dropped.
	maxSpans = 8192
	// deliverTimeout bounds the time for the last ones, at shutdown.
	deliverTimeout = 5 * time.Second
)

// Tracing is the destination of actions' spans.
type Tracing struct {
	// Endpoint is a collector that takes OTLP over gRPC: http://HOST:PORT, or https://HOST:PORT for
	// TLS. Empty: there are no spans.
	Endpoint string `tuning:"otlp_endpoint" group:"Tracing" unit:"URL" otherwise:"OTEL_EXPORTER_OTLP_ENDPOINT; else none" doc:"Collector of traces by OTLP over gRPC, http://HOST:PORT or https://HOST:PORT"`
}

// FromEnvironment sets t from OpenTelemetry's environment variable.
func (t *Tracing) FromEnvironment() { t.Endpoint = os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") }

// Check returns an error unless the settings can be used.
func (t *Tracing) Check() error {
	if t.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(t.Endpoint)
	if err == nil && (u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		err = errors.New("it must be http://HOST:PORT or https://HOST:PORT")
	}
	if err != nil {
		return settings.Wrong("tuning.otlp_endpoint %s: %w", t.Endpoint, err)
	}
	return nil
}

// Open returns the tracer of a service, or nil without tracing. Neither Open nor traced code ever
// waits for the collector. close sends the remaining spans, until abort ends.
func (t *Tracing) Open(ctx, abort context.Context, service string, log *zap.Logger) (_ trace.Tracer, close func() error, err error) {
	if t.Endpoint == "" {
		return nil, func() error { return nil }, nil
	}
	if err := t.Check(); err != nil {
		return nil, nil, err
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(t.Endpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("tuning.otlp_endpoint %s: %w", t.Endpoint, err)
	}
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", service)),
		resource.WithHost(), resource.WithFromEnv())
	if err != nil {
		log.Warn("traces lack some attributes of this program", zap.Error(err))
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(about),
		sdktrace.WithBatcher(&reportingExporter{SpanExporter: exporter, log: log}, sdktrace.WithMaxQueueSize(maxSpans)))
	return provider.Tracer("github.com/forerunner-build/forerunner"), func() error {
		ctx, cancel := flags.Lastly(abort, deliverTimeout)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("cannot deliver the last traces", zap.Error(err))
		}
		return nil
	}, nil
}

// A reportingExporter logs once that spans are not delivered, and once that they are again. One
// goroutine at a time calls its ExportSpans.
type reportingExporter struct {
	sdktrace.SpanExporter
	log     *zap.Logger
	failing bool
}

// ExportSpans implements sdktrace.SpanExporter. Undeliverable spans are dropped.
func (e *reportingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !e.failing:
		e.log.Warn("cannot deliver traces; dropping them", zap.Error(err))
	case err == nil && e.failing:
		e.log.Info("traces are delivered again")
	}
	e.failing = err != nil
	return nil
}
