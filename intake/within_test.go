package intake

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/intake/inprocess"
)

// handlers are those that a test needs.
type handlers struct {
	unary  func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error)
	answer func(*testpb.StreamingOutputCallRequest, outStream) error
	upload func(inStream) error
	duplex func(duplexStream) error
}

type (
	outStream    = grpc.ServerStreamingServer[testpb.StreamingOutputCallResponse]
	inStream     = grpc.ClientStreamingServer[testpb.StreamingInputCallRequest, testpb.StreamingInputCallResponse]
	duplexStream = grpc.BidiStreamingServer[testpb.StreamingOutputCallRequest, testpb.StreamingOutputCallResponse]
)

// A tested service has the handlers of a test.
type tested struct {
	testpb.UnimplementedTestServiceServer
	*handlers
}

func (h *tested) UnaryCall(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
	return h.unary(ctx, r)
}

func (h *tested) StreamingOutputCall(r *testpb.StreamingOutputCallRequest, s outStream) error {
	return h.answer(r, s)
}
func (h *tested) StreamingInputCall(s inStream) error { return h.upload(s) }
func (h *tested) FullDuplexCall(s duplexStream) error { return h.duplex(s) }

// A link is a connection to a Server.
type link struct {
	testpb.TestServiceClient
	conn interface {
		grpc.ClientConnInterface
		GetState() connectivity.State
		Close() error
	}
	*handlers
	server *Server
	within bool // it is no socket
}

const (
	unaryMethod  = testpb.TestService_UnaryCall_FullMethodName
	uploadMethod = testpb.TestService_StreamingInputCall_FullMethodName
	received     = 100_000 // bytes that a client of a link receives at most
)

// overBoth runs a test over a socket, as gRPC has it, and within the process: what holds for one
// must hold for the other.
func overBoth(t *testing.T, o Options, test func(t *testing.T, l *link)) {
	for _, within := range []bool{false, true} {
		t.Run(map[bool]string{false: "socket", true: "within"}[within], func(t *testing.T) {
			test(t, linked(t, o, within))
		})
	}
}

func linked(t *testing.T, o Options, within bool) *link {
	t.Helper()
	if o.Identify == nil {
		o.Identify = func(ctx context.Context, _ string) (context.Context, Caller, error) { return ctx, Caller{}, nil }
	}
	if o.Bounds.Calls == 0 {
		o.Bounds = BoundsFor(1 << 30)
	}
	l := &link{handlers: &handlers{}, server: NewServer(o), within: within}
	testpb.RegisterTestServiceServer(l.server, &tested{handlers: l.handlers})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- l.server.Serve(listener) }()
	if within {
		l.conn = l.server.Dial(peer.Peer{Addr: listener.Addr()}, inprocess.ConnOptions{MaxReceive: received})
	} else {
		l.conn, err = grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(received)))
	}
	if err != nil {
		t.Fatal(err)
	}
	l.TestServiceClient = testpb.NewTestServiceClient(l.conn)
	t.Cleanup(func() {
		l.conn.Close() // a test may have done so
		l.server.Stop()
		l.server.GracefulStop()
		if err := <-served; err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Error(err)
		}
	})
	return l
}

func body(text string) *testpb.Payload { return &testpb.Payload{Body: []byte(text)} }

// TestWithinUnary: a call carries headers, trailers, the peer, and errors with details. The handler
// does not get the values of the client's context.
func TestWithinUnary(t *testing.T) {
	type key struct{}
	overBoth(t, Options{}, func(t *testing.T, l *link) {
		var fault error
		l.unary = func(ctx context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			if ctx.Value(key{}) != nil {
				t.Error("the handler has a value of the client's context")
			}
			if method, _ := grpc.Method(ctx); method != unaryMethod {
				t.Errorf("the method is %q", method)
			}
			if _, ok := peer.FromContext(ctx); !ok {
				t.Error("the handler has no peer")
			}
			in, _ := metadata.FromIncomingContext(ctx)
			err := errors.Join(
				grpc.SetHeader(ctx, metadata.Pairs("first", in.Get("asked")[0])),
				grpc.SendHeader(ctx, metadata.Pairs("second-bin", in.Get("asked-bin")[0])),
				grpc.SetTrailer(ctx, metadata.Pairs("last", "z")))
			if err != nil {
				t.Error(err)
			}
			if err := grpc.SetHeader(ctx, metadata.Pairs("late", "x")); err == nil {
				t.Error("a header is set after it was sent")
			}
			return &testpb.SimpleResponse{Username: string(r.GetPayload().GetBody())}, fault
		}
		ctx := metadata.AppendToOutgoingContext(context.WithValue(t.Context(), key{}, 1), "asked", "a", "asked-bin", "\x00\xff")
		detailed, err := status.New(codes.NotFound, "gone").WithDetails(&errdetails.ErrorInfo{Reason: "why"})
		if err != nil {
			t.Fatal(err)
		}
		for _, fault = range []error{nil, detailed.Err()} {
			var header, trailer metadata.MD
			var from peer.Peer
			var finished []error
			r, err := l.UnaryCall(ctx, &testpb.SimpleRequest{Payload: body("hello")}, grpc.Header(&header), grpc.Trailer(&trailer),
				grpc.Peer(&from), grpc.OnFinish(func(err error) { finished = append(finished, err) }))
			if fault == nil && (err != nil || r.GetUsername() != "hello") {
				t.Errorf("%v, %v", r, err)
			}
			if s := status.Convert(err); fault != nil && !proto.Equal(s.Proto(), detailed.Proto()) {
				t.Errorf("%v, want %v", s.Proto(), detailed.Proto())
			}
			if !slices.Equal(header.Get("first"), []string{"a"}) || !slices.Equal(header.Get("second-bin"), []string{"\x00\xff"}) ||
				!slices.Equal(trailer.Get("last"), []string{"z"}) || header.Get("late") != nil {
				t.Errorf("header %v, trailer %v", header, trailer)
			}
			if from.Addr == nil || len(finished) != 1 || status.Code(finished[0]) != status.Code(fault) {
				t.Errorf("the peer is %v, it finished with %v", from.Addr, finished)
			}
		}
	})
}

// TestWithinCodes: a handler's error has the code that gRPC gives it.
func TestWithinCodes(t *testing.T) {
	overBoth(t, Options{}, func(t *testing.T, l *link) {
		for _, c := range []struct {
			err  error
			want codes.Code
		}{
			{errors.New("any"), codes.Unknown},
			{context.Canceled, codes.Canceled},
			{context.DeadlineExceeded, codes.DeadlineExceeded},
			{io.EOF, codes.Unknown},
			{errors.Join(errors.New("outer"), status.Error(codes.DataLoss, "inner")), codes.DataLoss},
		} {
			l.unary = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) { return nil, c.err }
			l.answer = func(*testpb.StreamingOutputCallRequest, outStream) error { return c.err }
			_, err := l.UnaryCall(t.Context(), &testpb.SimpleRequest{})
			s, ok := status.FromError(err)
			if !ok || s.Code() != c.want || !strings.Contains(s.Message(), "") {
				t.Errorf("%v: %v, want %v", c.err, err, c.want)
			}
			if errors.Is(err, c.err) {
				t.Errorf("%v: the client has the handler's own error", c.err)
			}
			stream, err := l.StreamingOutputCall(t.Context(), &testpb.StreamingOutputCallRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != c.want {
				t.Errorf("%v: a stream ends with %v, want %v", c.err, err, c.want)
			}
		}
		if err := l.conn.Invoke(t.Context(), "/grpc.testing.TestService/None", &testpb.Empty{}, &testpb.Empty{}); status.Code(err) != codes.Unimplemented {
			t.Errorf("a method that does not exist: %v", err)
		}
	})
}

// TestWithinOwnMessages: each side may change a message as soon as it has sent or received it, and
// keep it for as long as it likes.
func TestWithinOwnMessages(t *testing.T) {
	overBoth(t, Options{}, func(t *testing.T, l *link) {
		var kept []*testpb.StreamingOutputCallRequest
		shared := &testpb.SimpleResponse{Payload: body("shared"), ServerId: "server"}
		l.unary = func(_ context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			copy(r.GetPayload().GetBody(), "XXXXXX")
			r.Payload.Type = 7
			return shared, nil
		}
		request := &testpb.SimpleRequest{Payload: body("mine")}
		for range 2 {
			r, err := l.UnaryCall(t.Context(), request)
			if err != nil || string(r.GetPayload().GetBody()) != "shared" || string(request.GetPayload().GetBody()) != "mine" || request.Payload.Type != 0 {
				t.Errorf("%v, %v; the request is %v", r, err, request)
			}
			copy(r.GetPayload().GetBody(), "XXXXXX")
			r.ServerId = "changed"
		}
		l.duplex = func(s duplexStream) error {
			answer := &testpb.StreamingOutputCallResponse{Payload: body("0123")}
			for {
				r, err := s.Recv()
				if err == io.EOF {
					return nil
				}
				if err != nil {
					return err
				}
				kept = append(kept, r)
				copy(answer.Payload.Body, r.GetPayload().GetBody())
				if err := s.Send(answer); err != nil {
					return err
				}
				copy(answer.Payload.Body, "????")
			}
		}
		stream, err := l.FullDuplexCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		message := &testpb.StreamingOutputCallRequest{
			Payload: body("...."), ResponseParameters: []*testpb.ResponseParameters{{Size: 1}},
		}
		var got []*testpb.StreamingOutputCallResponse
		texts := []string{"abcd", "efgh", "ijkl"}
		for i, text := range texts {
			copy(message.Payload.Body, text)
			message.ResponseParameters[0].Size = int32(i)
			if err := stream.Send(message); err != nil {
				t.Fatal(err)
			}
			copy(message.Payload.Body, "!!!!")
			message.ResponseParameters[0].Size = 99
			r, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r)
		}
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := stream.Recv(); err != io.EOF {
			t.Errorf("at the end: %v", err)
		}
		for i, text := range texts {
			if a, r := got[i].GetPayload().GetBody(), kept[i]; string(a) != text || string(r.GetPayload().GetBody()) != text ||
				r.ResponseParameters[0].GetSize() != int32(i) {
				t.Errorf("message %d: the client has %q, the handler %v; want %q", i, a, r, text)
			}
		}
	})
}

// TestWithinAnyMessage: all fields arrive, those that this program does not know too; what cannot
// be encoded is an error.
func TestWithinAnyMessage(t *testing.T) {
	overBoth(t, Options{}, func(t *testing.T, l *link) {
		var answer *testpb.SimpleResponse
		l.unary = func(_ context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			if answer != nil {
				return answer, nil
			}
			made := &testpb.SimpleResponse{Payload: r.Payload, OauthScope: r.GetResponseStatus().GetMessage()}
			made.ProtoReflect().SetUnknown(slices.Clone(r.ProtoReflect().GetUnknown()))
			return made, nil
		}
		unknown := protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "unknown")
		request := &testpb.SimpleRequest{Payload: body("x"), ResponseStatus: &testpb.EchoStatus{Message: "text"}}
		request.ProtoReflect().SetUnknown(unknown)
		r := &testpb.SimpleResponse{Hostname: "of before"}
		err := l.conn.Invoke(t.Context(), unaryMethod, request, r)
		if err != nil || !bytes.Equal(r.ProtoReflect().GetUnknown(), unknown) || r.GetOauthScope() != "text" || r.GetHostname() != "" {
			t.Errorf("%v, %v", r, err)
		}
		request.ResponseStatus.Message = "not \xff UTF-8"
		if _, err := l.UnaryCall(t.Context(), request); status.Code(err) != codes.Internal {
			t.Errorf("text in a request that is not UTF-8: %v", err)
		}
		answer = &testpb.SimpleResponse{Username: "\xff"}
		if _, err := l.UnaryCall(t.Context(), &testpb.SimpleRequest{}); status.Code(err) != codes.Internal {
			t.Errorf("text in an answer that is not UTF-8: %v", err)
		}
		answer = nil
		for _, pair := range [][]string{{"name", "a\nb"}, {"name", "é"}, {"na me", "x"}} {
			_, err := l.UnaryCall(metadata.AppendToOutgoingContext(t.Context(), pair...), &testpb.SimpleRequest{})
			if status.Code(err) != codes.Internal {
				t.Errorf("header %q: %v", pair, err)
			}
		}
		var refused error
		l.unary = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			refused = grpc.SetHeader(ctx, metadata.Pairs("name", "a\nb"))
			return nil, nil
		}
		var header metadata.MD
		_, err = l.UnaryCall(t.Context(), &testpb.SimpleRequest{}, grpc.Header(&header))
		if refused == nil && status.Code(err) != codes.Internal || refused != nil && err != nil || header.Get("name") != nil {
			t.Errorf("a header with a line break: %v, then %v; the client has %v", refused, err, header)
		}
	})
}

// TestWithinLimits: a message has the limit of its method, and those of the caller.
func TestWithinLimits(t *testing.T) {
	const limit = 10_000
	overBoth(t, Options{Methods: map[string]Limits{unaryMethod: {Bytes: limit}, uploadMethod: {Bytes: limit}}}, func(t *testing.T, l *link) {
		l.unary = func(_ context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			return &testpb.SimpleResponse{Payload: body(strings.Repeat("x", int(r.GetResponseSize())))}, nil
		}
		l.upload = func(s inStream) error {
			for {
				if _, err := s.Recv(); err != nil {
					return err
				}
			}
		}
		for _, c := range []struct {
			request, answer int
			option          grpc.CallOption
			want            codes.Code
		}{
			{limit - 100, received - 100, grpc.EmptyCallOption{}, codes.OK},
			{limit + 1, 0, grpc.EmptyCallOption{}, codes.ResourceExhausted},
			{0, received + 1, grpc.EmptyCallOption{}, codes.ResourceExhausted},
			{0, received + 1, grpc.MaxCallRecvMsgSize(2 * received), codes.OK},
			{1000, 0, grpc.MaxCallSendMsgSize(1000), codes.ResourceExhausted},
		} {
			request := &testpb.SimpleRequest{Payload: body(strings.Repeat("x", c.request)), ResponseSize: int32(c.answer)}
			if _, err := l.UnaryCall(t.Context(), request, c.option); status.Code(err) != c.want {
				t.Errorf("%d bytes, answer of %d: %v, want %v", c.request, c.answer, err, c.want)
			}
		}
		stream, err := l.StreamingInputCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		large := &testpb.StreamingInputCallRequest{Payload: body(strings.Repeat("x", limit+1))}
		for err == nil {
			err = stream.Send(large)
		}
		if err != io.EOF {
			t.Errorf("a request after the end of its stream: %v", err)
		}
		if _, err := stream.CloseAndRecv(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a stream with a request above the limit: %v", err)
		}
	})
}

// TestWithinAdmission: calls go through what refuses, identifies and intercepts them, and one
// connection has a limited number at a time.
func TestWithinAdmission(t *testing.T) {
	refused := status.Error(codes.PermissionDenied, "refused")
	var mu sync.Mutex
	var seen []string
	see := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, what)
	}
	refuse := func(ctx context.Context, at string) error {
		see(at)
		if slices.Contains(metadata.ValueFromIncomingContext(ctx, "refuse"), at) {
			return refused
		}
		return nil
	}
	unary := func(at string) grpc.UnaryServerInterceptor {
		return func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := refuse(ctx, at); err != nil {
				return nil, err
			}
			return next(ctx, r)
		}
	}
	streamed := func(at string) grpc.StreamServerInterceptor {
		return func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := refuse(s.Context(), at); err != nil {
				return err
			}
			return next(srv, s)
		}
	}
	b := BoundsFor(1 << 30)
	b.Streams = 2
	o := Options{
		Bounds: b,
		Look:   func(ctx context.Context, _ string) (context.Context, error) { return ctx, refuse(ctx, "look") },
		Identify: func(ctx context.Context, _ string) (context.Context, Caller, error) {
			return ctx, Caller{}, refuse(ctx, "identify")
		},
		OuterUnary: []grpc.UnaryServerInterceptor{unary("outer")}, OuterStream: []grpc.StreamServerInterceptor{streamed("outer")},
		Unary: []grpc.UnaryServerInterceptor{unary("inner")}, Stream: []grpc.StreamServerInterceptor{streamed("inner")},
	}
	overBoth(t, o, func(t *testing.T, l *link) {
		entered, release := make(chan struct{}), make(chan struct{})
		l.unary = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) { return nil, nil }
		l.answer = func(*testpb.StreamingOutputCallRequest, outStream) error {
			entered <- struct{}{}
			<-release
			return nil
		}
		all := []string{"look", "outer", "identify", "inner"}
		for i, at := range all {
			seen = nil
			ctx := metadata.AppendToOutgoingContext(t.Context(), "refuse", at)
			_, err := l.UnaryCall(ctx, &testpb.SimpleRequest{})
			if status.Code(err) != codes.PermissionDenied || !slices.Equal(seen, all[:i+1]) {
				t.Errorf("refused at %s: %v, after %q", at, err, seen)
			}
			seen = nil
			stream, err := l.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != codes.PermissionDenied || !slices.Equal(seen, all[:i+1]) {
				t.Errorf("a stream that is refused at %s: %v, after %q", at, err, seen)
			}
		}

		var calls sync.WaitGroup
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			stream, err := l.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
			if err != nil {
				t.Fatal(err)
			}
			calls.Go(func() {
				if _, err := stream.Recv(); err != io.EOF {
					t.Error(err)
				}
			})
			<-entered
		}
		limited, stop := context.WithTimeout(ctx, 50*time.Millisecond)
		defer stop()
		if _, err := l.UnaryCall(limited, &testpb.SimpleRequest{}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a third call beside two: %v", err)
		}
		close(release)
		calls.Wait()
		if _, err := l.UnaryCall(ctx, &testpb.SimpleRequest{}); err != nil {
			t.Errorf("after them: %v", err)
		}
		cancel()
	})
}

// TestWithinChargedToNobody: limits of callers are for others.
func TestWithinChargedToNobody(t *testing.T) {
	b := BoundsFor(1 << 30)
	b.CallsOfOne = 0
	l := linked(t, Options{Bounds: b, Identify: func(ctx context.Context, _ string) (context.Context, Caller, error) {
		return ctx, Caller{Name: "somebody"}, nil
	}}, true)
	l.unary = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
		return nil, Reserve(ctx, 1<<40)
	}
	if _, err := l.UnaryCall(t.Context(), &testpb.SimpleRequest{}); err != nil {
		t.Error(err)
	}
}

// TestWithinOptions: options of a call that choose how messages are encoded are refused, because
// they would have no effect.
func TestWithinOptions(t *testing.T) {
	l := linked(t, Options{}, true)
	l.unary = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) { return nil, nil }
	for _, o := range []grpc.CallOption{grpc.CallContentSubtype("json"), grpc.PerRPCCredentials(nil)} {
		if _, err := l.UnaryCall(t.Context(), &testpb.SimpleRequest{}, o); status.Code(err) != codes.Unimplemented {
			t.Errorf("%s: %v", reflect.TypeOf(o), err)
		}
	}
	if err := l.conn.Invoke(t.Context(), unaryMethod, "text", &testpb.SimpleResponse{}); status.Code(err) != codes.Internal {
		t.Errorf("a request that is no message: %v", err)
	}
}
