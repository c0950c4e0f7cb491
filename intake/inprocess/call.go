package inprocess

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// A call has what both of its sides use.
type call struct {
	conn   *Conn
	name   string // /package.Service/Method
	method method
	// ctx is that of the handler. It ends with that of the client, with the Conn or the Server, and
	// after the handler.
	ctx    context.Context
	cancel context.CancelCauseFunc
	client context.Context

	// requests and answers wait to be received: one of each. The client closes requests. Nobody
	// closes answers: goroutines of a handler may outlive it.
	requests, answers chan message
	headed            chan struct{} // closed once the header is complete
	done              chan struct{} // closed when the handler has returned, and status is set

	mu              sync.Mutex
	header, trailer metadata.MD // guarded by mu
	sent            bool        // headed is closed; guarded by mu
	// status is the result of the call. It is set before done is closed.
	status error
}

// newCall returns a call with these headers. Its context ends with cancel.
func newCall(client context.Context, conn *Conn, name string, m method, headers metadata.MD) *call {
	c := &call{
		conn: conn, name: name, method: m, client: client,
		requests: make(chan message, 1), answers: make(chan message, 1),
		headed: make(chan struct{}), done: make(chan struct{}),
	}
	ctx, cancel := context.WithCancelCause(valueless{client})
	ctx = metadata.NewIncomingContext(peer.NewContext(ctx, conn.from), headers)
	c.ctx, c.cancel = grpc.NewContextWithServerTransportStream(ctx, transport{c}), cancel
	return c
}

// valueless is the context of a client without its values: these are not the handler's.
type valueless struct{ context.Context }

// Value implements context.Context.
func (valueless) Value(any) any { return nil }

// AfterFunc makes contexts that are derived from this one end with it without a goroutine.
func (v valueless) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(v.Context, f) }

// errNoReturn is the result of a handler that ends its goroutine.
var errNoReturn = fault(codes.Internal, "the handler did not return")

// serve runs the handler.
func (c *call) serve() {
	err := errNoReturn
	defer func() { c.end(err) }()
	err = c.handle()
}

func (c *call) handle() error {
	ctx := c.ctx
	if begin := c.conn.server.options.Begin; begin != nil {
		var err error
		if ctx, err = begin(ctx, c.name); err != nil {
			return err
		}
	}
	return c.method.desc.Handler(c.method.service, &serverStream{c, ctx})
}

// abandon ends a call whose handler has not run.
func (c *call) abandon() { c.end(nil) }

// end ends a call with the result of its handler.
func (c *call) end(result error) {
	// What the handler says of a call that has ended already is not its client's business: if it is
	// no error, the answers need not be complete.
	if c.status = c.broken(); c.status == nil && result != nil {
		c.status = statusOf(result)
	}
	c.sendHeader()
	close(c.done)
	c.cancel(nil)
	c.conn.server.leave(c)
	c.conn.give()
}

// statusOf returns the status of a handler's error, with nothing that the handler keeps. Its text can
// be a field of a message.
func statusOf(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	own := s.Proto()
	own.Message = strings.ToValidUTF8(own.GetMessage(), "\uFFFD")
	return status.ErrorProto(own)
}

// fault returns an error of this package.
func fault(c codes.Code, format string, args ...any) error {
	return status.Errorf(c, "a call within the process: %s", fmt.Sprintf(format, args...))
}

// broken returns the status of a call that its client, its Conn or the Server has ended, with a
// status as the reason; nil of others.
func (c *call) broken() error {
	if err := c.client.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	reason := context.Cause(c.ctx)
	if _, ended := status.FromError(reason); ended {
		return reason
	}
	return nil // it has not ended, or only after its handler
}

// setHeader adds headers, unless they have been sent.
func (c *call) setHeader(md metadata.MD) error {
	if err := checkHeaders(md); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent {
		return errors.New("the header of the call has been sent")
	}
	c.header = metadata.Join(c.header, md)
	return nil
}

// sendHeader completes the header. It may be called again.
func (c *call) sendHeader() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.sent {
		c.sent = true
		close(c.headed)
	}
}

// setTrailer adds trailers.
func (c *call) setTrailer(md metadata.MD) error {
	if err := checkHeaders(md); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trailer = metadata.Join(c.trailer, md)
	return nil
}

// metadata returns the header or the trailer of c as far as it is known.
func (c *call) metadata(of *metadata.MD) metadata.MD {
	c.mu.Lock()
	defer c.mu.Unlock()
	return of.Copy()
}
