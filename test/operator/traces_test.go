package operator

import (
	"context"
	"encoding/hex"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/test/programs"
)

// A collector takes spans by OTLP.
type collector struct {
	coltracepb.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans []*tracepb.Span // guarded by mu
}

func (c *collector) Export(
	_ context.Context, req *coltracepb.ExportTraceServiceRequest,
) (*coltracepb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			c.spans = append(c.spans, s.GetSpans()...)
		}
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

// serveCollector returns a collector and its URL.
func serveCollector(f *programs.Test) (*collector, string) {
	f.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	c, server := &collector{}, grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(server, c)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	f.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			f.Error(err)
		}
	})
	return c, "http://" + listener.Addr().String()
}

// TestTraces has a client trace an action: the spans of scheduler and worker are one tree below its
// own. They are all delivered when the farm has ended.
func TestTraces(t *testing.T) {
	t.Parallel()
	f := programs.New(t, programs.OwnSandbox)
	const traceID, clientSpan = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
	spans, url := serveCollector(f)
	farm, address := f.With("FORERUNNER_OTLP_ENDPOINT=" + url).Up(filepath.Join(f.Dir, "data"))
	f.With("TRACEPARENT=00-"+traceID+"-"+clientSpan+"-01").Exec(address, "--", "/bin/sh", "-c", "echo done").Expect(0, "done\n")
	farm.Drain()

	spans.mu.Lock()
	defer spans.mu.Unlock()
	names := map[string]string{clientSpan: "client"} // by id
	for _, s := range spans.spans {
		if hex.EncodeToString(s.GetTraceId()) == traceID {
			names[hex.EncodeToString(s.GetSpanId())] = s.GetName()
		}
		if s.GetStartTimeUnixNano() > s.GetEndTimeUnixNano() {
			f.Errorf("span %s ends before it begins", s.GetName())
		}
	}
	tree := map[string]string{} // parents
	for _, s := range spans.spans {
		if hex.EncodeToString(s.GetTraceId()) == traceID {
			tree[s.GetName()] = names[hex.EncodeToString(s.GetParentSpanId())]
		}
	}
	want := map[string]string{"Execute": "client", "queue": "Execute", "run": "Execute", "action": "Execute"}
	for _, stage := range []string{"accept", "fetch", "mount", "prepare", "wait", "execute", "upload", "report"} {
		want[stage] = "action"
	}
	for name, parent := range want {
		// A stage that took no time that a clock can tell has no span.
		if got, ok := tree[name]; got != parent && (ok || parent != "action" || name == "execute") {
			f.Errorf("span %q is below %q, want %q; there are %v", name, got, parent, slices.Sorted(maps.Keys(tree)))
		}
		delete(tree, name)
	}
	for name := range tree {
		f.Errorf("span %q is not known", name)
	}
}
