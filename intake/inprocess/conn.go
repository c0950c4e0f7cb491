package inprocess

import (
	"context"

	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// ConnOptions are the options of a Conn.
type ConnOptions struct {
	// MaxReceive limits the bytes of an answer, if the call has no option for that. 0: 4 MiB, as in
	// gRPC.
	MaxReceive int
	// Closed is called once, when the Conn is closed, before its calls end. Nil: nothing is.
	Closed func()
}

// A Conn makes calls. It may be used concurrently.
type Conn struct {
	server  *Server
	from    *peer.Peer
	options ConnOptions
	streams *semaphore.Weighted // nil: there is no limit
	closed  bool                // guarded by the mu of server
}

var _ grpc.ClientConnInterface = (*Conn)(nil)

// GetState is READY until the Conn is closed or the server stops.
func (c *Conn) GetState() connectivity.State {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	switch {
	case c.closed:
		return connectivity.Shutdown
	case c.server.stopped:
		return connectivity.TransientFailure
	}
	return connectivity.Ready
}

// Close ends all calls of c. It may be called again.
func (c *Conn) Close() error {
	c.server.mu.Lock()
	was := c.closed
	c.closed = true
	c.server.mu.Unlock()
	if was {
		return nil
	}
	if c.options.Closed != nil {
		c.options.Closed()
	}
	c.server.end(func(of *call) bool { return of.conn == c }, errClosed)
	return nil
}

// Invoke implements grpc.ClientConnInterface.
func (c *Conn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	s, err := c.open(ctx, &grpc.StreamDesc{}, method, opts)
	if err != nil {
		return err
	}
	// The request is there before the handler starts, which then need not wait for it.
	if err := s.SendMsg(args); err != nil {
		s.abandon()
		return err
	}
	c.server.options.Go(s.serve)
	return s.RecvMsg(reply)
}

// NewStream implements grpc.ClientConnInterface.
func (c *Conn) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := c.open(ctx, desc, method, opts)
	if err != nil {
		return nil, err
	}
	c.server.options.Go(s.serve)
	return s, nil
}

// open begins a call, whose handler does not run yet.
func (c *Conn) open(ctx context.Context, desc *grpc.StreamDesc, method string, opts []grpc.CallOption) (*clientStream, error) {
	o := callOptions{maxReceive: c.options.MaxReceive}
	if err := o.read(opts); err != nil {
		return nil, err
	}
	m, ok := c.server.methods[method]
	if !ok {
		m.desc.Handler = noMethod
	}
	headers, err := headersOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.take(ctx); err != nil {
		return nil, err
	}
	of := newCall(ctx, c, method, m, headers)
	if err := c.server.enter(of); err != nil {
		of.cancel(nil)
		c.give()
		return nil, err
	}
	return &clientStream{call: of, desc: desc, options: o}, nil
}

// noMethod is the handler of methods that do not exist.
func noMethod(any, grpc.ServerStream) error {
	return status.Error(codes.Unimplemented, "this server has no such method")
}

// take waits until the connection may have one more call.
func (c *Conn) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	if c.streams == nil {
		return nil
	}
	if err := c.streams.Acquire(ctx, 1); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}

// give ends what take began.
func (c *Conn) give() {
	if c.streams != nil {
		c.streams.Release(1)
	}
}
