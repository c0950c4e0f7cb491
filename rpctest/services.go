package rpctest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// ErrNoMessage: bytes are not a message of the method's type. gRPC answers such a call itself; the
// service does not see it.
var ErrNoMessage = errors.New("the bytes are not a message of the method")

// Services are gRPC services; the zero value has none. It is a grpc.ServiceRegistrar.
type Services struct {
	methods map[string]method
}

type method struct {
	service any
	unary   grpc.MethodHandler
	stream  grpc.StreamHandler
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *Services) RegisterService(d *grpc.ServiceDesc, service any) {
	if s.methods == nil {
		s.methods = map[string]method{}
	}
	for _, m := range d.Methods {
		s.methods["/"+d.ServiceName+"/"+m.MethodName] = method{service: service, unary: m.Handler}
	}
	for _, m := range d.Streams {
		s.methods["/"+d.ServiceName+"/"+m.StreamName] = method{service: service, stream: m.Handler}
	}
}

// Methods returns the names of all methods, /package.Service/Method, sorted.
func (s *Services) Methods() []string { return slices.Sorted(maps.Keys(s.methods)) }

// Call calls a method with encoded requests, of which a unary method gets the first. It returns the
// encoded answers and the error. The incoming metadata of ctx are the headers. An error about an
// answer that cannot be encoded is not a status.
func (s *Services) Call(ctx context.Context, name string, requests ...[]byte) (answers [][]byte, err error) {
	m, ok := s.methods[name]
	if !ok {
		return nil, fmt.Errorf("there is no method %s", name)
	}
	c := &call{ctx: ctx, requests: requests}
	if m.stream != nil {
		err = m.stream(m.service, c)
		return c.answers, errors.Join(c.undecoded, err)
	}
	answer, err := m.unary(m.service, ctx, c.RecvMsg, nil)
	if err != nil {
		return nil, errors.Join(c.undecoded, err)
	}
	err = c.SendMsg(answer)
	return c.answers, err
}

// A call is a grpc.ServerStream.
type call struct {
	ctx       context.Context
	requests  [][]byte
	answers   [][]byte
	undecoded error
}

func (c *call) Context() context.Context     { return c.ctx }
func (c *call) SetHeader(metadata.MD) error  { return nil }
func (c *call) SendHeader(metadata.MD) error { return nil }
func (c *call) SetTrailer(metadata.MD)       {}

// RecvMsg decodes the next request.
func (c *call) RecvMsg(m any) error {
	if len(c.requests) == 0 {
		return io.EOF
	}
	request := c.requests[0]
	c.requests = c.requests[1:]
	if err := proto.Unmarshal(request, m.(proto.Message)); err != nil {
		c.undecoded = fmt.Errorf("%w: %w", ErrNoMessage, err)
		return c.undecoded
	}
	return nil
}

// SendMsg encodes an answer.
func (c *call) SendMsg(m any) error {
	answer, err := proto.Marshal(m.(proto.Message))
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	c.answers = append(c.answers, answer)
	return nil
}
