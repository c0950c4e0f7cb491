package serve

import (
	"maps"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// TestCallsAreCounted calls methods that succeed, fail, and do not exist.
func TestCallsAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	server, _, err := NewGRPC(registry, &Activity{}, Protection{}, Callers{})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	client := healthpb.NewHealthClient(conn)
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nobody"}); err == nil {
		t.Error("a service that there is not is healthy")
	}
	if err := conn.Invoke(t.Context(), "/made.up/Name", &healthpb.HealthCheckRequest{}, &healthpb.HealthCheckResponse{}); err == nil {
		t.Error("a method that there is not answers")
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	server.GracefulStop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	const check = "/grpc.health.v1.Health/Check "
	if got, want := counted(t, registry), (map[string]float64{check + "OK": 1, check + "NotFound": 1}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// counted returns the numbers of calls by method and code.
func counted(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["method"] == "" {
				continue // refusals
			}
			got[labels["method"]+" "+labels["code"]] = m.GetCounter().GetValue()
		}
	}
	return got
}
