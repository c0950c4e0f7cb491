package serve

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/farm/flags"
)

// NewRegistry returns a metrics registry with the metrics of the process.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildInfo())
	return r
}

// buildInfo is a metric with value 1 and the versions of the program.
func buildInfo() prometheus.Collector {
	build := flags.ReadBuild()
	labels := prometheus.Labels{"version": build.Version, "revision": build.Commit, "go_version": build.Go}
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "forerunner_build_info", Help: "1, with version, revision and Go version as labels.", ConstLabels: labels,
	})
	g.Set(1)
	return g
}

// calls counts the calls of a gRPC server by method. Only existing methods get here, so there are
// as many series as methods and codes.
type calls struct{ ended *prometheus.CounterVec }

func newCalls(r prometheus.Registerer) *calls {
	c := &calls{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forerunner_grpc_calls_total", Help: "Completed calls by method and gRPC code.",
	}, []string{"method", "code"})}
	r.MustRegister(c.ended)
	return c
}

func (c *calls) count(method string, err error) {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err) // the status that the client gets
	}
	c.ended.WithLabelValues(method, st.Code().String()).Inc()
}

func (c *calls) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	resp, err := handler(ctx, req)
	c.count(info.FullMethod, err)
	return resp, err
}

func (c *calls) stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	err := handler(srv, stream)
	c.count(info.FullMethod, err)
	return err
}
