package farm

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"google.golang.org/grpc"
	channelz "google.golang.org/grpc/channelz/service"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas"
)

// What a side sends of one call, and of all calls of a connection, before the other one
// has said that it has room. Left to itself, gRPC begins with 64 KiB, which takes ten
// round trips until it is enough for a large blob, and ends with 16 MiB for both.
const (
	streamWindow     = 16 << 20
	connectionWindow = 64 << 20
)

// maxHeaderBytes bounds the headers of one call. It leaves room to tell a client that
// its RequestMetadata is too long, and which bound that has.
const maxHeaderBytes = 2 << 20

// streamWorkers is how many goroutines wait for calls; beyond them each call gets a new
// one, whose stack has to grow first.
const streamWorkers = 2048

// stopTimeout bounds how long calls in flight may take to end at shutdown.
const stopTimeout = 5 * time.Second

// newGRPC returns a server with health, reflection and channelz. c counts its calls, and a sees those
// that p lets through.
func newGRPC(c *calls, a *activity, p protection) (*grpc.Server, *health.Server) {
	s := grpc.NewServer(append(append([]grpc.ServerOption{
		grpc.ChainUnaryInterceptor(c.unary),
		grpc.ChainStreamInterceptor(c.stream),
	}, p.options()...),
		grpc.ChainUnaryInterceptor(a.unary),
		grpc.ChainStreamInterceptor(a.stream),
		grpc.MaxRecvMsgSize(cas.MaxMessageBytes),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: 10 * time.Second, PermitWithoutStream: true,
		}),
		// A machine that vanished sends nothing any more; its connection would stay.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 15 * time.Second, Timeout: 10 * time.Second}),
	)...)
	h := health.NewServer()
	healthpb.RegisterHealthServer(s, h)
	reflection.Register(s)
	channelz.RegisterChannelzServiceToServer(s)
	return s, h
}

// stopGRPC lets calls end by themselves for a while, then ends them.
func stopGRPC(s *grpc.Server, h *health.Server) {
	h.Shutdown()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.GracefulStop()
	}()
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		s.Stop()
		<-stopped
	}
}

// serveHTTP serves health, metrics, profiles of the program and pages, which may be nil, until stop is
// called. No address: nothing.
func (p *Ports) serveHTTP(
	ctx context.Context, address string, protect protection, registry *prometheus.Registry, pages http.Handler,
) (stop func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	listener, err := p.listen(ctx, "--http", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{
		Handler:           httpHandler(address, protect, registry, pages),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(protect.encrypt(listener)) }()
	return func() error {
		closeErr := server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			return errors.Join(err, closeErr)
		}
		return closeErr
	}, nil
}

// httpHandler answers on a port with that address.
func httpHandler(address string, protect protection, registry *prometheus.Registry, pages http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", protect.pages(auth.Observe,
		promhttp.HandlerFor(registry, promhttp.HandlerOpts{Registry: registry})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	if pages != nil {
		mux.Handle("/", pages)
	}
	host, _, err := net.SplitHostPort(address)
	local := err == nil && isLoopback(host)
	if local || protect.guard != nil { // else whoever reaches the port could keep the program busy
		mux.Handle("/debug/pprof/", protect.pages(auth.Administer, profiling()))
	}
	if local {
		return localOnly(mux)
	}
	return mux
}
