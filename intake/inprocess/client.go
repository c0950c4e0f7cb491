package inprocess

import (
	"context"
	"io"
	"math"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// customary is gRPC's default limit of an answer.
const customary = 4 << 20

// callOptions are the options of one call.
type callOptions struct {
	headers, trailers   []*metadata.MD
	peers               []*peer.Peer
	finish              []func(error)
	maxSend, maxReceive int
}

// read adds options. Those that choose how messages travel have no effect.
func (o *callOptions) read(opts []grpc.CallOption) error {
	o.maxSend = math.MaxInt32
	if o.maxReceive == 0 {
		o.maxReceive = customary
	}
	for _, opt := range opts {
		switch opt := opt.(type) {
		case grpc.HeaderCallOption:
			o.headers = append(o.headers, opt.HeaderAddr)
		case grpc.TrailerCallOption:
			o.trailers = append(o.trailers, opt.TrailerAddr)
		case grpc.PeerCallOption:
			o.peers = append(o.peers, opt.PeerAddr)
		case grpc.OnFinishCallOption:
			o.finish = append(o.finish, opt.OnFinish)
		case grpc.MaxRecvMsgSizeCallOption:
			o.maxReceive = opt.MaxRecvMsgSize
		case grpc.MaxSendMsgSizeCallOption:
			o.maxSend = opt.MaxSendMsgSize
		case grpc.PerRPCCredsCallOption, grpc.ContentSubtypeCallOption, grpc.ForceCodecCallOption, grpc.ForceCodecV2CallOption:
			return fault(codes.Unimplemented, "there is no option %T", opt)
		}
	}
	return nil
}

// A clientStream is the client's side of a call. As in gRPC, one goroutine may send while another
// one receives.
type clientStream struct {
	*call
	desc    *grpc.StreamDesc
	options callOptions
	closed  bool  // nothing more is sent; of the sender
	result  error // what RecvMsg returns once the call has ended; of the receiver

	finished sync.Once
}

var _ grpc.ClientStream = (*clientStream)(nil)

// Context implements grpc.ClientStream.
func (s *clientStream) Context() context.Context { return s.client }

// Header implements grpc.ClientStream.
func (s *clientStream) Header() (metadata.MD, error) {
	select {
	case <-s.headed:
	case <-s.ctx.Done():
		select {
		case <-s.headed:
		default:
			return nil, s.broken()
		}
	}
	return s.metadata(&s.header), nil
}

// Trailer implements grpc.ClientStream.
func (s *clientStream) Trailer() metadata.MD {
	return s.metadata(&s.trailer)
}

// CloseSend implements grpc.ClientStream.
func (s *clientStream) CloseSend() error {
	if !s.closed {
		s.closed = true
		close(s.requests)
	}
	return nil
}

// SendMsg implements grpc.ClientStream. A call that has ended takes no request: a stream of
// requests ends with io.EOF, and RecvMsg returns why.
func (s *clientStream) SendMsg(m any) error {
	if s.closed {
		return s.fail(fault(codes.Internal, "SendMsg after CloseSend, or of a second request in a call that takes one"))
	}
	request, err := encode(m, s.conn.server.options.Pool)
	if err != nil {
		return s.fail(err)
	}
	if n := request.size(); n > s.options.maxSend {
		request.free()
		return s.fail(fault(codes.ResourceExhausted, "the request has %d bytes; the caller sends at most %d", n, s.options.maxSend))
	}
	if !s.desc.ClientStreams {
		s.requests <- request // there is room for one
		return s.CloseSend()
	}
	if s.ctx.Err() == nil {
		select {
		case s.requests <- request:
			return nil
		case <-s.ctx.Done():
		}
	}
	request.free()
	return io.EOF
}

// fail ends a call because of a fault of its client.
func (s *clientStream) fail(err error) error {
	s.cancel(err)
	s.finish(err)
	return err
}

// RecvMsg implements grpc.ClientStream.
func (s *clientStream) RecvMsg(m any) error {
	if s.result != nil {
		return s.result
	}
	answer, err := s.next()
	if err == nil {
		err = s.take(m, answer)
	}
	switch {
	case err == io.EOF && !s.desc.ServerStreams:
		err = fault(codes.Internal, "the call has ended without an answer")
	case err == nil && !s.desc.ServerStreams: // its status comes with the answer
		switch _, end := s.next(); end {
		case io.EOF:
			s.result = io.EOF
			s.finish(nil)
			return nil
		case nil:
			err = fault(codes.Internal, "a second answer in a call that has one")
		default:
			err = end
		}
	}
	if err != nil {
		s.result = err
		s.cancel(err)
		s.finish(err)
	}
	return err
}

// take decodes an answer into m, if it is within the limit.
func (s *clientStream) take(m any, answer message) error {
	if n := answer.size(); n > s.options.maxReceive {
		answer.free()
		return fault(codes.ResourceExhausted, "the answer has %d bytes; the caller takes at most %d", n, s.options.maxReceive)
	}
	return answer.decode(m)
}

// next returns the next answer. After the last one the error is the status of the call, or io.EOF
// if that is OK.
func (s *clientStream) next() (message, error) {
	select {
	case answer := <-s.answers:
		return answer, nil
	case <-s.done:
	case <-s.ctx.Done():
	}
	select { // it has ended, perhaps after more answers
	case answer := <-s.answers:
		return answer, nil
	default:
	}
	select {
	case <-s.done:
	default:
		return message{}, s.broken()
	}
	if s.status != nil {
		return message{}, s.status
	}
	return message{}, io.EOF
}

// finish fulfils the options of a call that has ended.
func (s *clientStream) finish(err error) {
	s.finished.Do(func() {
		if err == io.EOF {
			err = nil
		}
		for _, h := range s.options.headers {
			*h = s.metadata(&s.header)
		}
		for _, t := range s.options.trailers {
			*t = s.metadata(&s.trailer)
		}
		for _, p := range s.options.peers {
			*p = *s.conn.from
		}
		for _, f := range s.options.finish {
			f(err)
		}
	})
}
