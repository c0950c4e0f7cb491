package inprocess

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// A serverStream is the handler's side of a call.
type serverStream struct {
	call *call
	ctx  context.Context
}

var _ grpc.ServerStream = (*serverStream)(nil)

// Context implements grpc.ServerStream.
func (s *serverStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream.
func (s *serverStream) RecvMsg(m any) error {
	request, err := s.call.request()
	if err != nil {
		return err
	}
	return request.decode(m)
}

// request returns the next request, or io.EOF after the last one.
func (c *call) request() (message, error) {
	select {
	case request, ok := <-c.requests:
		return c.requested(request, ok)
	default:
	}
	select {
	case request, ok := <-c.requests:
		return c.requested(request, ok)
	case <-c.ctx.Done():
		return message{}, status.FromContextError(c.ctx.Err()).Err()
	}
}

// requested is request with what came of the channel. What a client has sent that has given up is
// not complete, although it may say so.
func (c *call) requested(request message, ok bool) (message, error) {
	if ok {
		return request, nil
	}
	if err := c.broken(); err != nil {
		return message{}, err
	}
	return message{}, io.EOF
}

// SendMsg implements grpc.ServerStream.
func (s *serverStream) SendMsg(m any) error {
	if err := s.call.ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	answer, err := encode(m, s.call.conn.server.options.Pool)
	if err != nil {
		return err
	}
	s.call.sendHeader()
	select {
	case s.call.answers <- answer:
		return nil
	case <-s.call.ctx.Done():
		answer.free()
		return status.FromContextError(s.call.ctx.Err()).Err()
	}
}

// SetHeader implements grpc.ServerStream.
func (s *serverStream) SetHeader(md metadata.MD) error { return s.call.setHeader(md) }

// SendHeader implements grpc.ServerStream.
func (s *serverStream) SendHeader(md metadata.MD) error { return transport{s.call}.SendHeader(md) }

// SetTrailer implements grpc.ServerStream.
func (s *serverStream) SetTrailer(md metadata.MD) { _ = s.call.setTrailer(md) }

// A transport is what functions such as grpc.SetHeader use.
type transport struct{ call *call }

var _ grpc.ServerTransportStream = transport{}

// Receive is RecvMsg of the handler's stream for a request of at most so many bytes. It returns the
// size of the request; a longer one is not decoded.
func (t transport) Receive(m any, most int) (size int, err error) {
	request, err := t.call.request()
	if err != nil {
		return 0, err
	}
	if size = request.size(); size > most {
		request.free()
		return size, nil
	}
	return size, request.decode(m)
}

// Method implements grpc.ServerTransportStream.
func (t transport) Method() string { return t.call.name }

// SetHeader implements grpc.ServerTransportStream.
func (t transport) SetHeader(md metadata.MD) error { return t.call.setHeader(md) }

// SendHeader implements grpc.ServerTransportStream.
func (t transport) SendHeader(md metadata.MD) error {
	if err := t.call.setHeader(md); err != nil {
		return err
	}
	t.call.sendHeader()
	return nil
}

// SetTrailer implements grpc.ServerTransportStream.
func (t transport) SetTrailer(md metadata.MD) error { return t.call.setTrailer(md) }
