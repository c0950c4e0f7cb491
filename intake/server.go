package intake

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
)

// Limits are those of the requests of one method.
type Limits struct {
	// Bytes of one message; 0: 4 MiB.
	Bytes int
	// Stalls lets a stream of requests be silent for as long as it likes.
	Stalls bool
}

// Options are what may be chosen about a Server.
type Options struct {
	Bounds Bounds
	// Methods has the limits of those methods that differ from others.
	Methods map[string]Limits
	// Look sees the headers of a call, on the goroutine that reads its connection: it must not block. An
	// error ends the call. Nil: all calls go on.
	Look func(ctx context.Context, method string) (context.Context, error)
	// Identify returns under which name a call is charged; empty: it is not. It may block.
	Identify func(ctx context.Context, method string) (_ context.Context, name string, _ error)
	// Unary and Stream are interceptors, outermost first. They see calls that have been let in, and refused
	// ones if they are Outer.
	OuterUnary, Unary   []grpc.UnaryServerInterceptor
	OuterStream, Stream []grpc.StreamServerInterceptor
	Metrics             prometheus.Registerer
}

// A Server is a gRPC server whose calls are bounded. Services are registered with it, not with the
// grpc.Server in it.
type Server struct {
	*grpc.Server
	options Options
	ledger  *ledger
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// NewServer returns a Server. more are for the grpc.Server; interceptors among them are not called.
func NewServer(o Options, more ...grpc.ServerOption) *Server {
	s := &Server{options: o, ledger: newLedger(o.Bounds, countRefused(o.Metrics))}
	b := o.Bounds
	s.Server = grpc.NewServer(append(more,
		grpc.InTapHandle(s.tap),
		grpc.MaxConcurrentStreams(b.Streams),
		grpc.StaticStreamWindowSize(b.Window),
	)...)
	return s
}

// tap is called for the headers of each call, before anything is kept of it.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if s.options.Look != nil {
		var err error
		if ctx, err = s.options.Look(ctx, info.FullMethodName); err != nil {
			s.ledger.refused("nobody")
			return ctx, err
		}
	}
	return withExpire(ctx), nil
}

// RegisterService implements grpc.ServiceRegistrar.
func (s *Server) RegisterService(d *grpc.ServiceDesc, service any) {
	own := *d
	own.Methods, own.Streams = nil, nil
	for _, m := range d.Methods {
		own.Streams = append(own.Streams, grpc.StreamDesc{
			StreamName: m.MethodName, Handler: s.unary("/"+d.ServiceName+"/"+m.MethodName, m),
		})
	}
	for _, m := range d.Streams {
		full, handler := "/"+d.ServiceName+"/"+m.StreamName, m.Handler
		info := &grpc.StreamServerInfo{FullMethod: full, IsClientStream: m.ClientStreams, IsServerStream: m.ServerStreams}
		inner := chainStream(s.options.Stream, info, handler)
		m.Handler = chainStream(s.options.OuterStream, info, func(srv any, stream grpc.ServerStream) error {
			return s.admit(info, stream, func(in *receiver) error { return inner(srv, in) })
		})
		own.Streams = append(own.Streams, m)
	}
	s.Server.RegisterService(&own, service)
}

// unary returns what answers a unary call as a stream.
func (s *Server) unary(full string, m grpc.MethodDesc) grpc.StreamHandler {
	info := &grpc.StreamServerInfo{FullMethod: full}
	inner, outer := chainUnary(s.options.Unary), chainUnary(s.options.OuterUnary)
	return func(srv any, stream grpc.ServerStream) error {
		answer := func(ctx context.Context, _ any) (reply any, err error) {
			err = s.admit(info, stream, func(in *receiver) error {
				reply, err = m.Handler(srv, in.Context(), in.RecvMsg, inner)
				return err
			})
			return reply, err
		}
		reply, err := outer(stream.Context(), nil,
			&grpc.UnaryServerInfo{Server: srv, FullMethod: full}, answer)
		if err != nil {
			return err
		}
		return stream.SendMsg(reply)
	}
}

var errNoRaw = errors.New("this version of gRPC does not show the lengths of messages")

// admit lets a call in, and ends what it is charged for.
func (s *Server) admit(info *grpc.StreamServerInfo, stream grpc.ServerStream, handle func(*receiver) error) error {
	ctx, name, err := s.options.Identify(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	from, ok := grpc.ServerTransportStreamFromContext(ctx).(raw)
	if !ok {
		return errNoRaw
	}
	limits := s.options.Methods[info.FullMethod]
	if limits.Bytes == 0 {
		limits.Bytes = customary
	}
	in := &receiver{
		ServerStream: &known{stream, ctx}, raw: from, limit: s.options.Bounds.MaxMessage(limits.Bytes),
		expire: expireOf(ctx), first: true, single: !info.IsClientStream,
	}
	if name == "" {
		in.limit = limits.Bytes
		return handle(in)
	}
	a, err := s.ledger.enter(name)
	if err != nil {
		return err
	}
	defer a.leave()
	in.account = a
	defer in.free()
	if info.IsClientStream && !limits.Stalls {
		in.rest = s.options.Bounds.Stall
		cost := s.options.Bounds.upload()
		if err := a.reserve(ctx, uploadPool, cost); err != nil {
			return err
		}
		defer a.release(uploadPool, cost)
	}
	return handle(in)
}

// known is a stream of a caller who has been identified.
type known struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (k *known) Context() context.Context { return k.ctx }

// chainUnary returns one interceptor for all.
func chainUnary(all []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		for i := len(all) - 1; i >= 0; i-- {
			outer, inner := all[i], handler
			handler = func(ctx context.Context, req any) (any, error) { return outer(ctx, req, info, inner) }
		}
		return handler(ctx, req)
	}
}

// chainStream returns a handler that goes through all interceptors.
func chainStream(all []grpc.StreamServerInterceptor, info *grpc.StreamServerInfo, handler grpc.StreamHandler) grpc.StreamHandler {
	for i := len(all) - 1; i >= 0; i-- {
		outer, inner := all[i], handler
		handler = func(srv any, stream grpc.ServerStream) error { return outer(srv, stream, info, inner) }
	}
	return handler
}

// countRefused returns what counts refusals, by reason.
func countRefused(r prometheus.Registerer) func(reason string) {
	if r == nil {
		return func(string) {}
	}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "forerunner_grpc_refused_total", Help: "Calls and connections that were refused before they were answered, by reason.",
	}, []string{"reason"})
	r.MustRegister(refused)
	for _, reason := range []string{"nobody", "no_identity", "connections", "calls", "calls_of_one", "waiting", "no_room", "late"} {
		refused.WithLabelValues(reason) // shown before it happens
	}
	return func(reason string) { refused.WithLabelValues(reason).Inc() }
}

// Refused returns what counts refusals, for a Gate.
func (s *Server) Refused() func(reason string) { return s.ledger.refused }
