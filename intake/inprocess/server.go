package inprocess

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/peer"
)

// Options are the options of a Server.
type Options struct {
	// Begin is called with the headers of each call, before its handler, which gets the returned
	// context. An error ends the call. Nil: all calls begin.
	Begin func(ctx context.Context, method string) (context.Context, error)
	// Streams are the concurrent calls of one Conn; further ones wait. 0: without limit.
	Streams uint32
	// Pool has the buffers of messages. Nil: that of gRPC.
	Pool mem.BufferPool
	// Go runs a handler without waiting for it. Nil: each on a new goroutine.
	Go func(handler func())
}

// A Server has the handlers of calls. It may be used concurrently once all services are registered.
type Server struct {
	options Options
	methods map[string]method // by /package.Service/Method

	mu      sync.Mutex
	stopped bool               // no further call begins; guarded by mu
	calls   map[*call]struct{} // whose handlers run; guarded by mu
	running sync.WaitGroup     // these handlers; it grows only before stopped
}

// A method is a stream handler with its service.
type method struct {
	service any
	desc    grpc.StreamDesc
}

// NewServer returns a Server without services.
func NewServer(o Options) *Server {
	if o.Pool == nil {
		o.Pool = mem.DefaultBufferPool()
	}
	if o.Go == nil {
		o.Go = func(handler func()) { go handler() }
	}
	return &Server{options: o, methods: map[string]method{}, calls: map[*call]struct{}{}}
}

// RegisterService implements grpc.ServiceRegistrar, for the streams of a service.
func (s *Server) RegisterService(d *grpc.ServiceDesc, service any) {
	for _, m := range d.Streams {
		s.methods["/"+d.ServiceName+"/"+m.StreamName] = method{service, m}
	}
}

// Dial returns a Conn whose calls come from a peer.
func (s *Server) Dial(from peer.Peer, o ConnOptions) *Conn {
	c := &Conn{server: s, from: &from, options: o}
	if n := s.options.Streams; n > 0 {
		c.streams = semaphore.NewWeighted(int64(n))
	}
	return c
}

// GracefulStop lets no further call begin, and waits until all handlers have returned. It may be
// called again.
func (s *Server) GracefulStop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.running.Wait()
}

// Stop lets no further call begin, and ends all calls. It does not wait for their handlers. It may
// be called again.
func (s *Server) Stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.end(func(*call) bool { return true }, errStopped)
}

var (
	errStopped = fault(codes.Unavailable, "the server has stopped")
	errClosed  = fault(codes.Canceled, "the connection is closed")
)

// end ends some calls.
func (s *Server) end(which func(*call) bool, reason error) {
	s.mu.Lock()
	var ends []*call
	for c := range s.calls {
		if which(c) {
			ends = append(ends, c)
		}
	}
	s.mu.Unlock()
	for _, c := range ends {
		c.cancel(reason)
	}
}

// enter adds a call, whose handler will run.
func (s *Server) enter(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.stopped:
		return errStopped
	case c.conn.closed:
		return errClosed
	}
	s.calls[c] = struct{}{}
	s.running.Add(1)
	return nil
}

// leave removes a call, whose handler has returned.
func (s *Server) leave(c *call) {
	s.mu.Lock()
	delete(s.calls, c)
	s.mu.Unlock()
	s.running.Done()
}
