package intake

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// TestWithinEnds: a deadline and a cancellation end both sides of calls, also while a handler heeds
// neither.
func TestWithinEnds(t *testing.T) {
	overBoth(t, Options{}, func(t *testing.T, l *link) {
		for _, heeds := range []bool{true, false} {
			entered, release, ended := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)
			wait := func(ctx context.Context) error {
				entered <- struct{}{}
				if !heeds {
					<-release
				}
				<-ctx.Done()
				ended <- ctx.Err()
				return errors.New("the handler's own error")
			}
			l.unary = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
				return nil, wait(ctx)
			}
			l.upload = func(s inStream) error {
				if _, err := s.Recv(); err != nil {
					t.Error(err)
				}
				entered <- struct{}{}
				if !heeds {
					<-release
				}
				_, err := s.Recv()
				if err == io.EOF {
					t.Error("an upload that its client has cancelled looks like a complete one")
				}
				ended <- s.Context().Err()
				return err
			}
			limited, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := l.UnaryCall(limited, &testpb.SimpleRequest{})
			if status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("after its deadline: %v", err)
			}
			stop()
			<-entered
			if !heeds {
				release <- struct{}{}
			}
			if err := <-ended; err == nil { // gRPC's client may be faster than the handler's own timer
				t.Error("the handler's context has not ended")
			}

			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-entered; cancel() }()
			if _, err := l.UnaryCall(ctx, &testpb.SimpleRequest{}); status.Code(err) != codes.Canceled {
				t.Errorf("a cancelled call: %v", err)
			}
			if !heeds {
				release <- struct{}{}
			}
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the handler's context ends with %v", err)
			}
			if _, err := l.UnaryCall(ctx, &testpb.SimpleRequest{}); status.Code(err) != codes.Canceled {
				t.Errorf("a call that is cancelled before: %v", err)
			}

			ctx, cancel = context.WithCancel(t.Context())
			stream, err := l.StreamingInputCall(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&testpb.StreamingInputCallRequest{}); err != nil {
				t.Error(err)
			}
			<-entered
			cancel()
			if err := stream.RecvMsg(&testpb.StreamingInputCallResponse{}); status.Code(err) != codes.Canceled {
				t.Errorf("a cancelled upload: %v", err)
			}
			if !heeds {
				release <- struct{}{}
			}
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the handler's context ends with %v", err)
			}
		}
	})
}

// TestWithinCancelledAnswers: a client that leaves a stream of answers frees its handler, which
// would have sent more.
func TestWithinCancelledAnswers(t *testing.T) {
	overBoth(t, Options{}, func(t *testing.T, l *link) {
		ended := make(chan error, 1)
		l.answer = func(_ *testpb.StreamingOutputCallRequest, s outStream) error {
			for {
				if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: body(strings.Repeat("x", 50_000))}); err != nil {
					ended <- err
					return err
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := l.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		cancel()
		for err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.Canceled {
			t.Errorf("the client gets %v", err)
		}
		if err := <-ended; status.Code(err) != codes.Canceled && status.Code(err) != codes.Unavailable {
			t.Errorf("the handler gets %v", err)
		}
	})
}

// TestWithinEarlyEnd: a handler may answer an upload before it has read all of it.
func TestWithinEarlyEnd(t *testing.T) {
	overBoth(t, Options{}, func(t *testing.T, l *link) {
		l.upload = func(s inStream) error {
			if _, err := s.Recv(); err != nil {
				return err
			}
			return s.SendAndClose(&testpb.StreamingInputCallResponse{AggregatedPayloadSize: 5})
		}
		stream, err := l.StreamingInputCall(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for err == nil {
			err = stream.Send(&testpb.StreamingInputCallRequest{})
		}
		if err != io.EOF {
			t.Errorf("a request after the answer: %v", err)
		}
		r, err := stream.CloseAndRecv()
		if err != nil || r.GetAggregatedPayloadSize() != 5 {
			t.Errorf("%v, %v", r, err)
		}
	})
}

// TestWithinStops: a server that stops waits for calls, refuses new ones, and ends those that take
// too long; a connection that is closed ends its own.
func TestWithinStops(t *testing.T) {
	for what, stop := range map[string]struct {
		end  func(l *link)
		want []codes.Code
	}{
		"finished": {nil, []codes.Code{codes.OK}},
		"stopped":  {func(l *link) { l.server.Stop() }, []codes.Code{codes.Unavailable}},
		"closed":   {func(l *link) { l.conn.Close() }, []codes.Code{codes.Canceled, codes.Unavailable}}, // at a socket both
	} {
		t.Run(what, func(t *testing.T) {
			overBoth(t, Options{}, func(t *testing.T, l *link) {
				entered, release, ended := make(chan struct{}, 1), make(chan struct{}), make(chan error, 1)
				l.unary = func(ctx context.Context, _ *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
					entered <- struct{}{}
					select {
					case <-release:
					case <-ctx.Done():
					}
					ended <- ctx.Err()
					return &testpb.SimpleResponse{}, ctx.Err()
				}
				result := make(chan error, 1)
				go func() {
					_, err := l.UnaryCall(t.Context(), &testpb.SimpleRequest{})
					result <- err
				}()
				<-entered
				// A socket can have the call before it says that it is connected.
				eventually(t, func() bool { return l.conn.GetState() == connectivity.Ready })
				stopped := make(chan struct{})
				go func() { l.server.GracefulStop(); close(stopped) }()
				eventually(t, func() bool { return l.conn.GetState() != connectivity.Ready })
				if l.within { // over a socket it may come just before the listener is closed
					if _, err := l.UnaryCall(t.Context(), &testpb.SimpleRequest{}); status.Code(err) != codes.Unavailable {
						t.Errorf("a new call: %v", err)
					}
				}
				select {
				case <-stopped:
					t.Error("the server does not wait for a call")
				case err := <-result:
					t.Errorf("the call ends with %v", err)
				default:
				}
				if stop.end == nil {
					close(release)
				} else {
					stop.end(l)
				}
				if err := <-result; !slices.Contains(stop.want, status.Code(err)) {
					t.Errorf("the call ends with %v, want %v", err, stop.want)
				}
				if err := <-ended; (err == nil) != (stop.end == nil) {
					t.Errorf("the handler's context ends with %v", err)
				}
				<-stopped
			})
		})
	}
}

// TestWithinClosed: a closed connection takes no calls.
func TestWithinClosed(t *testing.T) {
	overBoth(t, Options{}, func(t *testing.T, l *link) {
		for range 2 {
			_ = l.conn.Close() // the second time is an error of gRPC
		}
		if _, err := l.UnaryCall(t.Context(), &testpb.SimpleRequest{}); status.Code(err) != codes.Canceled {
			t.Errorf("%v, want %v", err, codes.Canceled)
		}
		if s := l.conn.GetState(); s != connectivity.Shutdown {
			t.Errorf("the connection is %v", s)
		}
	})
}

// TestWithinGoexit: a stream whose handler ends its goroutine is not one that succeeds.
func TestWithinGoexit(t *testing.T) {
	l := linked(t, Options{}, true)
	l.answer = func(*testpb.StreamingOutputCallRequest, outStream) error {
		runtime.Goexit()
		return nil
	}
	stream, err := l.StreamingOutputCall(t.Context(), &testpb.StreamingOutputCallRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Internal {
		t.Error(err)
	}
}

// TestWithinPanic: a handler that panics ends the process, as one of gRPC does, and its client does
// not take the call for answered.
func TestWithinPanic(t *testing.T) {
	if os.Getenv("PANICS") != "" {
		l := linked(t, Options{}, true)
		l.unary = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) { panic("on purpose") }
		if _, err := l.UnaryCall(t.Context(), &testpb.SimpleRequest{}); err == nil {
			os.Exit(0)
		}
		select {}
	}
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestWithinPanic$")
	c.Env = append(os.Environ(), "PANICS=1")
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !strings.Contains(string(out), "panic: on purpose") {
		t.Errorf("it ends with %v: %s", err, out)
	}
}

// TestWithinConcurrently makes calls of all kinds at once, many of which end early; -race watches
// them, and none may be left.
func TestWithinConcurrently(t *testing.T) {
	overBoth(t, Options{}, func(t *testing.T, l *link) {
		l.unary = func(_ context.Context, r *testpb.SimpleRequest) (*testpb.SimpleResponse, error) {
			return &testpb.SimpleResponse{Payload: r.GetPayload()}, nil
		}
		l.answer = func(r *testpb.StreamingOutputCallRequest, s outStream) error {
			for range 20 {
				if err := s.Send(&testpb.StreamingOutputCallResponse{Payload: r.GetPayload()}); err != nil {
					return err
				}
			}
			return nil
		}
		l.upload = func(s inStream) error {
			var n int32
			for {
				r, err := s.Recv()
				if err == io.EOF {
					return s.SendAndClose(&testpb.StreamingInputCallResponse{AggregatedPayloadSize: n})
				}
				if err != nil {
					return err
				}
				n += int32(len(r.GetPayload().GetBody()))
			}
		}
		var callers sync.WaitGroup
		for caller := range 8 {
			callers.Go(func() {
				request := &testpb.SimpleRequest{Payload: body("text")}
				for i := range 100 {
					ctx, cancel := context.WithCancel(t.Context())
					early := (caller+i)%4 == 0
					if early {
						go cancel()
					}
					r, err := l.UnaryCall(ctx, request)
					switch {
					case early && status.Code(err) == codes.Canceled:
					case err != nil || string(r.GetPayload().GetBody()) != "text":
						t.Errorf("%v, %v", r, err)
					}
					request.Payload.Body = []byte("text") // the last one may still be on its way
					sent, want := 0, int64(0)
					up, err := l.StreamingInputCall(ctx)
					for err == nil && sent < 20 {
						err = up.Send(&testpb.StreamingInputCallRequest{Payload: request.Payload})
						sent, want = sent+1, want+4
					}
					if up != nil {
						n, err := up.CloseAndRecv()
						if !(early && status.Code(err) == codes.Canceled) && (err != nil || int64(n.GetAggregatedPayloadSize()) != want) {
							t.Errorf("%v, %v", n, err)
						}
					}
					down, err := l.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{Payload: request.Payload})
					for err == nil {
						_, err = down.Recv()
					}
					if err != io.EOF && !(early && status.Code(err) == codes.Canceled) {
						t.Error(err)
					}
					cancel()
				}
			})
		}
		callers.Wait()
		l.server.GracefulStop()
	})
}
