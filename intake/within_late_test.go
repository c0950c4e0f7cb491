package intake

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// TestWithinQuietEnd: answers are not complete because their handler returns without an error when
// its context ends.
func TestWithinQuietEnd(t *testing.T) {
	for what, end := range map[string]struct {
		end  func(l *link, cancel func())
		want codes.Code
	}{
		"cancelled": {func(_ *link, cancel func()) { cancel() }, codes.Canceled},
		"deadline":  {func(*link, func()) {}, codes.DeadlineExceeded},
		"stopped":   {func(l *link, _ func()) { l.server.Stop() }, codes.Unavailable},
	} {
		t.Run(what, func(t *testing.T) {
			overBoth(t, Options{}, func(t *testing.T, l *link) {
				ended := make(chan struct{})
				l.answer = func(_ *testpb.StreamingOutputCallRequest, s outStream) error {
					if err := s.Send(&testpb.StreamingOutputCallResponse{}); err != nil {
						t.Error(err)
					}
					<-s.Context().Done()
					close(ended)
					return nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				if what == "deadline" {
					ctx, cancel = context.WithTimeout(ctx, 2*time.Second) // in which also a busy machine answers
				}
				defer cancel()
				stream, err := l.StreamingOutputCall(ctx, &testpb.StreamingOutputCallRequest{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := stream.Recv(); err != nil {
					t.Fatal(err)
				}
				end.end(l, cancel)
				<-ended
				l.server.GracefulStop() // the client looks after the handler has returned
				_, err = stream.Recv()
				if err == io.EOF && what == "deadline" && !l.within {
					return // the two sides of a socket have timers of their own, and the server's may be first
				}
				if status.Code(err) != end.want {
					t.Errorf("it ends with %v, want %v", err, end.want)
				}
			})
		})
	}
}

// TestWithinSendsTooLate: what a handler's goroutine sends after the call is an error.
func TestWithinSendsTooLate(t *testing.T) {
	overBoth(t, Options{}, func(t *testing.T, l *link) {
		for range 200 {
			sent := make(chan error, 1)
			l.answer = func(_ *testpb.StreamingOutputCallRequest, s outStream) error {
				go func() {
					var err error
					for err == nil {
						err = s.Send(&testpb.StreamingOutputCallResponse{})
					}
					sent <- err
				}()
				return nil
			}
			stream, err := l.StreamingOutputCall(t.Context(), &testpb.StreamingOutputCallRequest{})
			for err == nil {
				_, err = stream.Recv()
			}
			if err != io.EOF {
				t.Error(err)
			}
			if err := <-sent; err == nil {
				t.Error("an answer is sent after the call")
			}
		}
	})
}

// TestWithinText: what a client gets as the text of an error can be a field of a message.
func TestWithinText(t *testing.T) {
	overBoth(t, Options{}, func(t *testing.T, l *link) {
		detailed, err := status.New(codes.NotFound, "file \xff é\n%41").WithDetails(&errdetails.ErrorInfo{Reason: "why"})
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range []error{status.Error(codes.NotFound, "file \xff é\n%41"), errors.New("file \xff"), detailed.Err()} {
			l.unary = func(context.Context, *testpb.SimpleRequest) (*testpb.SimpleResponse, error) { return nil, fault }
			_, err := l.UnaryCall(t.Context(), &testpb.SimpleRequest{})
			s := status.Convert(err)
			if !utf8.ValidString(s.Message()) || !strings.HasPrefix(s.Message(), "file ") || s.Code() != status.Code(fault) {
				t.Errorf("%q", s.Message())
			}
		}
	})
}
