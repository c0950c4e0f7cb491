package intake

import (
	"context"
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/forerunner-build/forerunner/crew"
	"github.com/forerunner-build/forerunner/intake/inprocess"
)

// Limits are the limits of the requests of one method.
type Limits struct {
	// Bytes limits one message; 0: 4 MiB.
	Bytes int
	// Truncates passes the beginning of a larger message on, instead of an error. Fields that are
	// incomplete in its first 16 KiB are missing; nested messages have their complete fields. The
	// rest is read and dropped.
	Truncates bool
	// Stalls lets a stream of requests be silent without limit.
	Stalls bool
	// Waits: calls wait for the progress of others, and their clients can come back. If there are
	// too many calls, they yield to callers that have fewer.
	Waits bool
	// FewHeaders refuses calls whose headers count as several calls, before they take memory.
	FewHeaders bool
}

// Options are the options of a Server.
type Options struct {
	Bounds Bounds
	// Credentials are the server's; their information about a connection may be an Arrival. Nil:
	// none.
	Credentials credentials.TransportCredentials
	// Methods has the limits of methods that differ from the default.
	Methods map[string]Limits
	// Look is called with the headers of a call, on the goroutine that reads its connection: it
	// must not block. An error ends the call. Nil: all calls are accepted.
	Look func(ctx context.Context, method string) (context.Context, error)
	// Pending returns the caller to charge while Identify runs; "": nobody, because Identify does
	// not block. Nil: always nobody.
	Pending func(ctx context.Context, method string) (caller string)
	// Identify returns the caller to charge. It may block.
	Identify func(ctx context.Context, method string) (context.Context, Caller, error)
	// Unary and Stream are interceptors, the outermost first. They intercept admitted calls; the
	// Outer ones also intercept refused calls.
	OuterUnary, Unary   []grpc.UnaryServerInterceptor
	OuterStream, Stream []grpc.StreamServerInterceptor
	Metrics             prometheus.Registerer
}

// A Caller is charged for a call.
type Caller struct {
	// Name identifies the caller; empty: nobody is charged for the call, and it is not limited.
	Name string
	// Guest: the caller has not authenticated although authentication is on. Its connection must
	// yield to others.
	Guest bool
}

// A Server is a gRPC server with limits for calls. Services are registered with it, not with the
// grpc.Server in it.
type Server struct {
	*grpc.Server
	options Options
	ledger  *ledger
	begins  *beginnings
	methods map[string]bool // existing ones
	within  *inprocess.Server
}

var _ grpc.ServiceRegistrar = (*Server)(nil)

// idleHandlers is how many goroutines wait for further calls from within the process.
const idleHandlers = 32

// NewServer returns a Server. more are options of the grpc.Server; interceptors and credentials
// among them are ignored.
func NewServer(o Options, more ...grpc.ServerOption) *Server {
	b := o.Bounds
	s := &Server{options: o, ledger: newLedger(b, countRefused(o.Metrics)), begins: newBeginnings(b), methods: map[string]bool{}}
	s.within = inprocess.NewServer(inprocess.Options{Begin: s.begin, Streams: b.Streams, Pool: pool, Go: crew.New(idleHandlers).Go})
	if o.Credentials == nil {
		o.Credentials = insecure.NewCredentials()
	}
	s.Server = grpc.NewServer(append(more,
		grpc.Creds(framing{o.Credentials}),
		grpc.ReadBufferSize(0), // frames has one
		grpc.InTapHandle(s.tap),
		grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")}),
		grpc.MaxConcurrentStreams(b.Streams),
		grpc.StaticStreamWindowSize(b.Window),
		grpc.MaxHeaderListSize(b.Headers),
		experimental.BufferPool(pool),
	)...)
	return s
}

// errNoMethod does not repeat the method name: gRPC keeps the error until its client reads it.
var errNoMethod = status.Error(codes.Unimplemented, "this server has no such method")

// tap is called for the headers of each call, before anything is kept of it.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	ctx, err := s.begin(ctx, info.FullMethodName)
	if err != nil {
		return ctx, err
	}
	b, err := s.begins.enter(ctx, info.Header)
	if err != nil {
		return ctx, err
	}
	b.from.through.open()
	return b, nil
}

// begin refuses calls by their headers.
func (s *Server) begin(ctx context.Context, method string) (context.Context, error) {
	if !s.methods[method] {
		s.ledger.refused("nobody")
		return ctx, errNoMethod
	}
	if s.options.Look != nil {
		var err error
		if ctx, err = s.options.Look(ctx, method); err != nil {
			s.ledger.refused("nobody")
			return ctx, err
		}
	}
	if s.options.Methods[method].FewHeaders {
		if n := callsOf(ctx); n > 1 {
			arrivedThrough(ctx).refuse(n)
			return ctx, s.ledger.refuse("nobody", errHeaders)
		}
	}
	return ctx, nil
}

// Dial returns a connection within this process, without a socket, whose calls come from a peer.
// They go through all that calls of others do, with the same limit of a message, but are charged to
// nobody. While they begin they take memory of their caller only.
func (s *Server) Dial(from peer.Peer, o inprocess.ConnOptions) *inprocess.Conn {
	return s.within.Dial(from, o)
}

// GracefulStop lets no further call begin, and waits for all others.
func (s *Server) GracefulStop() {
	var within sync.WaitGroup
	within.Go(s.within.GracefulStop)
	s.Server.GracefulStop()
	within.Wait()
}

// Stop ends all calls, and does not wait for their handlers.
func (s *Server) Stop() {
	s.within.Stop()
	s.Server.Stop()
}

var errHeaders = status.Error(codes.ResourceExhausted, "the headers of this call are too long")

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
		m.Handler = begun(chainStream(s.options.OuterStream, info, func(srv any, stream grpc.ServerStream) error {
			return s.admit(info, stream, func(in *receiver) error { return inner(srv, in) })
		}))
		own.Streams = append(own.Streams, m)
	}
	for _, m := range own.Streams {
		s.methods["/"+d.ServiceName+"/"+m.StreamName] = true
	}
	s.Server.RegisterService(&own, service)
	s.within.RegisterService(&own, service)
}

// unary returns a stream handler for a unary call.
func (s *Server) unary(full string, m grpc.MethodDesc) grpc.StreamHandler {
	info := &grpc.StreamServerInfo{FullMethod: full}
	inner, outer := chainUnary(s.options.Unary), chainUnary(s.options.OuterUnary)
	return begun(func(srv any, stream grpc.ServerStream) error {
		answer := func(ctx context.Context, _ any) (reply any, err error) {
			err = s.admit(info, stream, func(in *receiver) error {
				if reply, err = m.Handler(srv, in.Context(), in.RecvMsg, inner); err != nil {
					return err
				}
				return in.answer(reply)
			})
			return reply, err
		}
		_, err := outer(stream.Context(), nil,
			&grpc.UnaryServerInfo{Server: srv, FullMethod: full}, answer)
		return err
	})
}

// begun is a handler of calls that have begun.
func begun(handler grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		defer charged(stream.Context())
		if err := handled(stream.Context()); err != nil {
			return err
		}
		return handler(srv, stream)
	}
}

var errNoRaw = errors.New("this version of gRPC does not show the lengths of messages")

// admit lets a call in, and ends its charge. A call may wait in handle for hours: the earlier steps
// are in functions of their own, so that its stack stays small.
func (s *Server) admit(info *grpc.StreamServerInfo, stream grpc.ServerStream, handle func(*receiver) error) error {
	in, err := s.receive(info, stream)
	if err != nil {
		return err
	}
	defer s.release(in)
	err = handle(in)
	if err != nil && in.charge != nil && s.ledger.isCondemned(in.charge) {
		return errYielded // whatever its handler saw of that
	}
	return err
}

// receive identifies the caller of a call, and charges it. The caller of receive releases the
// result.
func (s *Server) receive(info *grpc.StreamServerInfo, stream grpc.ServerStream) (*receiver, error) {
	ctx, caller, err := s.identify(stream.Context(), info.FullMethod)
	if err != nil {
		arrivedThrough(ctx).refuse(callsOf(ctx))
		return nil, err
	}
	transport := grpc.ServerTransportStreamFromContext(ctx)
	direct, within := transport.(within)
	from, ok := transport.(raw)
	if !ok && !within {
		return nil, errNoRaw
	}
	limits := s.options.Methods[info.FullMethod]
	if limits.Bytes == 0 {
		limits.Bytes = customary
	}
	in := &receiver{
		ServerStream: &known{stream, ctx}, raw: from, direct: direct, ledger: s.ledger, limit: s.options.Bounds.MaxMessage(limits.Bytes),
		truncates: limits.Truncates, expire: expireOf(ctx), first: true, single: !info.IsClientStream,
	}
	if caller.Name == "" || within {
		in.limit = limits.Bytes
		return in, nil
	}
	if in.charge, err = s.ledger.enter(ctx, caller, connectionOf(ctx), callsOf(ctx), in.expire); err != nil {
		arrivedThrough(ctx).refuse(callsOf(ctx))
		return nil, err
	}
	if limits.Waits {
		s.ledger.letYield(in.charge)
	}
	beginningOf(ctx).receiver = in
	if !caller.Guest {
		in.keeps = arrivedThrough(ctx)
		in.keeps.Busy()
	}
	if info.IsClientStream {
		if !limits.Stalls {
			in.rest = s.options.Bounds.Stall
		}
		if err := s.ledger.reserve(ctx, in.charge, uploads, uploadBytes); err != nil {
			s.release(in)
			return nil, err
		}
	}
	return in, nil
}

// release ends the charge of a call.
func (s *Server) release(in *receiver) {
	if in.charge == nil {
		return
	}
	in.keeps.Idle()
	s.ledger.leave(in.charge, arrivedThrough(in.Context()))
}

// identify identifies the caller of a call, which is charged meanwhile if that can take long: its
// headers are kept.
func (s *Server) identify(ctx context.Context, method string) (context.Context, Caller, error) {
	var pending string
	if s.options.Pending != nil {
		pending = s.options.Pending(ctx, method)
	}
	if pending == "" {
		return s.options.Identify(ctx, method)
	}
	c, err := s.ledger.enter(ctx, Caller{Name: pending}, connectionOf(ctx), callsOf(ctx), expireOf(ctx))
	if err != nil {
		return ctx, Caller{}, err
	}
	charged(ctx)
	defer s.ledger.leave(c, nil)
	known, caller, err := s.options.Identify(ctx, method)
	if s.ledger.isCondemned(c) {
		return ctx, Caller{}, errYielded
	}
	return known, caller, err
}

// An Arrival describes a connection that came through a Gate.
type Arrival interface{ Through() *Conn }

// arrivedThrough returns the Conn that a call came through; nil: none.
func arrivedThrough(ctx context.Context) *Conn {
	if b := beginningOf(ctx); b != nil {
		return b.from.through
	}
	if p, ok := peer.FromContext(ctx); ok {
		if a, ok := p.AuthInfo.(Arrival); ok {
			return a.Through()
		}
	}
	return nil
}

// callsOf returns as how many calls one counts by its headers, which are kept until it ends: those
// of a client and a token are part of the cost of a call. A field takes some memory whatever its
// size.
func callsOf(ctx context.Context) int64 {
	if b := beginningOf(ctx); b != nil {
		return b.calls
	}
	headers, _ := metadata.FromIncomingContext(ctx)
	return callsFor(headers)
}

// callsFor is callsOf for a call with these headers.
func callsFor(headers metadata.MD) int64 {
	const field, part = 200, 8 << 10 // part of callBytes
	var bytes int64
	for name, values := range headers {
		for _, value := range values {
			bytes += 2*int64(len(name)+len(value)) + field
		}
	}
	return 1 + max(0, bytes-part+callBytes-1)/callBytes
}

// connectionOf distinguishes the connections of one caller.
func connectionOf(ctx context.Context) string {
	if p, ok := peer.FromContext(ctx); ok {
		return p.Addr.String()
	}
	return ""
}

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

// countRefused returns a counter of refusals, by reason.
func countRefused(r prometheus.Registerer) func(reason string) {
	return counter(r, "forerunner_grpc_refused_total",
		"Calls and connections that were refused or ended because of a limit, by reason.",
		"nobody", "no_identity", "connections", "idle", "calls", "calls_of_one", "calls_of_guests", "waiting", "no_room", "yielded", "late", "unread", "frames")
}

// counter returns a counter by reason. These reasons are shown from the start.
func counter(r prometheus.Registerer, name, help string, reasons ...string) func(reason string) {
	if r == nil {
		return func(string) {}
	}
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"reason"})
	r.MustRegister(counts)
	for _, reason := range reasons {
		counts.WithLabelValues(reason)
	}
	return func(reason string) { counts.WithLabelValues(reason).Inc() }
}

// Refused returns the counter of refusals, for a Gate.
func (s *Server) Refused() func(reason string) { return s.ledger.refused }
