package farm

import (
	"context"
	"errors"
	"net"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/peer"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/intake"
)

// serve serves the worker's HTTP port, and its store to other workers, until stop is called. cache
// is the address for these; empty: none. Once abort ends, stop waits for no call.
func (s *Started) serve(
	ctx, abort context.Context, what serve.Shown, store *disk.Store, readers *serve.Activity,
) (cache string, stop func() error, err error) {
	w, protect := s.w, s.checked.protect
	stopHTTP, err := w.Ports.ServeHTTP(ctx, w.HTTP, w.Callers, protect, what)
	if err != nil {
		return "", nil, err
	}
	cache, stopCache, err := w.serveCache(ctx, abort, what.Registry, servedStore{store, protect, readers, what.Ready})
	if err != nil {
		return "", nil, errors.Join(err, stopHTTP())
	}
	return cache, func() error { return errors.Join(stopCache(), stopHTTP()) }, nil
}

// A servedStore is a store that other workers read.
type servedStore struct {
	*disk.Store
	protect serve.Protection
	readers *serve.Activity // see their calls
	ready   *serve.Readiness
}

// serveCache is the part of serve that is for other workers.
func (w *Worker) serveCache(
	ctx, abort context.Context, registry *prometheus.Registry, store servedStore,
) (cache string, stop func() error, err error) {
	if w.ServeCache == "" {
		return "", func() error { return nil }, nil
	}
	host, _, _ := net.SplitHostPort(w.ServeCache)
	listener, err := w.Ports.Listen(ctx, "--serve-cache", w.ServeCache)
	if err != nil {
		return "", nil, err
	}
	if store.protect.Guard != nil {
		store.protect.Guard = store.protect.Guard.OfStore(w.InstancePrefix)
	}
	server, health, err := serve.NewGRPC(registry, store.readers, store.protect, w.Callers)
	if err != nil {
		return "", nil, errors.Join(err, listener.Close())
	}
	peers := peer.NewServer(store.Store, w.Logger)
	peers.Register(server)
	if err := errors.Join(w.checkReaders(store.protect.Guard, host, server), countServed(registry, peers)); err != nil {
		return "", nil, errors.Join(err, listener.Close())
	}
	gated, err := w.Callers.Accept(listener, server, store.ready, w.Logger)
	if err != nil {
		return "", nil, errors.Join(err, listener.Close())
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(gated) }()
	if w.reaches(host) {
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		cache = w.Ports.Scheme() + net.JoinHostPort(host, port)
	}
	return cache, func() error {
		serve.StopGRPC(abort, server, health)
		if err := <-served; !errors.Is(err, grpc.ErrServerStopped) { // it had not begun
			return err
		}
		return nil
	}, nil
}

// checkReaders returns an error if the guard does not know all served methods, and warns if there
// is no authentication where others can call.
func (w *Worker) checkReaders(guard *auth.Guard, host string, server *intake.Server) error {
	if guard != nil {
		return guard.Check(server.GetServiceInfo())
	}
	if !dial.IsLoopback(host) {
		w.Logger.Warn("authentication is off: anyone who reaches this port can read the worker's store "+
			"(set --tls-client-ca; see docs/SECURITY.md)", zap.String("serve-cache", w.ServeCache))
	}
	return nil
}

// reaches reports whether workers of the scheduler may find the store at host.
func (w *Worker) reaches(host string) bool {
	schedulers, _, err := dial.Addresses(w.Scheduler)
	elsewhere := err == nil && slices.ContainsFunc(schedulers, func(address string) bool {
		own, _, _ := net.SplitHostPort(address)
		return !dial.IsLoopback(own)
	})
	if dial.IsLoopback(host) && elsewhere {
		w.Logger.Warn("other workers cannot read this store: it is served on loopback, and the scheduler is elsewhere",
			zap.String("serve-cache", w.ServeCache))
		return false
	}
	return true
}

// countServed registers metrics of reads by peers.
func countServed(registry *prometheus.Registry, s *peer.Server) error {
	return errors.Join(
		registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "forerunner_worker_served_blobs_total",
			Help: "Blobs that other workers read from this worker's store.",
		}, func() float64 { blobs, _ := s.Served(); return float64(blobs) })),
		registry.Register(prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "forerunner_worker_served_bytes_total",
			Help: "Bytes of blobs that other workers read from this worker's store.",
		}, func() float64 { _, bytes := s.Served(); return float64(bytes) })))
}

// dialPeer connects to the store of another worker, which sees this one's certificate; a token it
// could use itself.
func (w *Worker) dialPeer(address string) (*grpc.ClientConn, error) {
	own := w.Client
	own.Token, own.Connect = "", nil
	return own.Dial(address)
}
