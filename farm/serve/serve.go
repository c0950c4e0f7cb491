package serve

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
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/intake"
)

// streamWorkers is how many goroutines wait for calls if there is enough memory; further calls
// start a new one, whose stack must grow first.
const streamWorkers = 2048

// handshakeTimeout bounds how long a connection may take until it can have calls.
const handshakeTimeout = 10 * time.Second

// maxScrapes limits concurrent reads of the metrics, because each gathers all of them. Others get
// 503.
const maxScrapes = 4

// stopTimeout bounds how long calls in flight may take to end at shutdown.
const stopTimeout = 5 * time.Second

// NewGRPC returns a server with health, reflection and channelz; registry counts its calls. a sees
// calls that p admits.
func NewGRPC(registry *prometheus.Registry, a *Activity, p Protection, c Callers) (*intake.Server, *health.Server, error) {
	memory, bounds, err := c.bounds()
	if err != nil {
		return nil, nil, err
	}
	o := p.intake(newCalls(registry), a)
	o.Bounds, o.Metrics, o.Credentials = bounds, registry, p.credentials()
	s := intake.NewServer(o,
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.StaticConnWindowSize(dial.ConnectionWindow),
		grpc.NumStreamWorkers(c.waiting(memory)),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: 10 * time.Second, PermitWithoutStream: true,
		}),
		// A machine that vanished sends nothing any more; its connection would stay.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 15 * time.Second, Timeout: 10 * time.Second}),
	)
	h := health.NewServer()
	healthpb.RegisterHealthServer(s, h)
	reflection.Register(s)
	channelz.RegisterChannelzServiceToServer(s)
	return s, h, nil
}

// StopGRPC lets calls end by themselves for a while, or until abort ends, then ends them.
func StopGRPC(abort context.Context, s *intake.Server, h *health.Server) {
	h.Shutdown()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.GracefulStop()
	}()
	patience, cancel := flags.Lastly(abort, stopTimeout)
	defer cancel()
	select {
	case <-stopped:
	case <-patience.Done():
		s.Stop()
		<-stopped
	}
}

// Shown is the content of a program's HTTP port.
type Shown struct {
	Registry *prometheus.Registry
	Ready    *Readiness
	Pages    http.Handler // nil: none
}

// ServeHTTP serves health, readiness, metrics, profiles of the program and pages, within the limits
// in c, until stop is called. Without an address it does nothing.
func (p *Ports) ServeHTTP(
	ctx context.Context, address string, c Callers, protect Protection, what Shown,
) (stop func() error, err error) {
	if address == "" {
		return func() error { return nil }, nil
	}
	_, bounds, err := c.bounds()
	if err != nil {
		return nil, err
	}
	listener, err := p.Listen(ctx, httpFlag, address)
	if err != nil {
		return nil, err
	}
	server := intake.NewHTTPServer(bounds, Handler(address, protect, what), what.Registry, protect.handshakeFailed)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener, protect.encrypt) }()
	return func() error {
		closeErr := server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			return errors.Join(err, closeErr)
		}
		return closeErr
	}, nil
}

// Handler returns the handler of a port with that address.
func Handler(address string, protect Protection, what Shown) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", protect.pages(auth.Observe,
		promhttp.HandlerFor(what.Registry, promhttp.HandlerOpts{Registry: what.Registry, MaxRequestsInFlight: maxScrapes})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.Handle("GET /readyz", what.Ready)
	switch {
	case what.Pages == nil:
	case protect.OwnUser:
		mux.Handle("/", ownOnly(what.Pages))
	default:
		mux.Handle("/", what.Pages)
	}
	host, _, err := net.SplitHostPort(address)
	local := err == nil && dial.IsLoopback(host)
	if local || protect.Guard != nil { // otherwise anyone that reaches the port could keep the program busy
		mux.Handle("/debug/pprof/", protect.pages(auth.Administer, profiling()))
	}
	if local {
		return localOnly(mux)
	}
	return mux
}
