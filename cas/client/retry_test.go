package client

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
)

// Each method survives two failures of each kind that passes.
func TestClientTriesAgain(t *testing.T) {
	for _, code := range []codes.Code{
		codes.Unavailable, codes.Aborted, codes.ResourceExhausted, codes.Internal, codes.DeadlineExceeded,
	} {
		var mu sync.Mutex
		failures := map[string]int{}
		fail := func(method string) error {
			mu.Lock()
			defer mu.Unlock()
			if failures[method]++; failures[method] <= 2 {
				return status.Error(code, "as the test wants")
			}
			return nil
		}
		f := servertest.Start(t, servertest.Config{
			Server: server.Options{AllowActionUpdates: true},
			Unary: func(ctx context.Context, r any, info *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
				if err := fail(info.FullMethod); err != nil {
					return nil, err
				}
				return call(ctx, r)
			},
			Stream: func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, call grpc.StreamHandler) error {
				if err := fail(info.FullMethod); err != nil {
					return err
				}
				return call(srv, s)
			},
		})
		client := clientOf(f, Options{})
		small, large := servertest.Bytes(1, 100), servertest.Bytes(2, 2*cas.StreamAbove)
		ds := []digest.Digest{digest.Of(digest.SHA256, small), digest.Of(digest.SHA256, large)}
		action, root := putAction(t, f, "a"), f.PutMessage(t, &repb.Directory{})
		if err := client.Upload(t.Context(), []Blob{BytesBlob(ds[0], small), BytesBlob(ds[1], large)}, nil); err != nil {
			t.Errorf("%s: upload: %v", code, err)
		}
		var sink servertest.Sink
		if err := client.Fetch(t.Context(), ds, sink.Take); err != nil {
			t.Errorf("%s: fetch: %v", code, err)
		}
		if err := client.UpdateActionResult(t.Context(), action, &repb.ActionResult{}); err != nil {
			t.Errorf("%s: update: %v", code, err)
		}
		if _, err := client.GetActionResult(t.Context(), action); err != nil {
			t.Errorf("%s: get: %v", code, err)
		}
		if _, err := client.GetTree(t.Context(), root); err != nil {
			t.Errorf("%s: tree: %v", code, err)
		}
		if len(failures) != 10 {
			t.Errorf("%s: failures were tried on %v", code, failures)
		}
	}
}

func TestClientGivesUp(t *testing.T) {
	var calls atomic.Int32
	var code atomic.Pointer[func(call int32) codes.Code]
	fail := func() error { return status.Error((*code.Load())(calls.Add(1)), "as the test wants") }
	f := servertest.Start(t, servertest.Config{
		NoCapabilities: true,
		Unary: func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
			return nil, fail()
		},
		Stream: func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error { return fail() },
	})
	always := func(c codes.Code) func(int32) codes.Code { return func(int32) codes.Code { return c } }
	for _, c := range []struct {
		name     string
		code     func(call int32) codes.Code
		retryFor time.Duration
		want     codes.Code
		calls    int32 // 0: any number
	}{
		{"time is over", always(codes.Unavailable), 30 * time.Millisecond, codes.Unavailable, 0},
		{"denied later", func(call int32) codes.Code {
			if call < 3 {
				return codes.Unavailable
			}
			return codes.PermissionDenied
		}, time.Minute, codes.PermissionDenied, 3},
		{"denied", always(codes.PermissionDenied), time.Minute, codes.PermissionDenied, 1},
		{"unknown", always(codes.Unauthenticated), time.Minute, codes.Unauthenticated, 1},
		{"refused", always(codes.FailedPrecondition), time.Minute, codes.FailedPrecondition, 1},
	} {
		client := clientOf(f, Options{RetryFor: c.retryFor})
		client.link.known.Store(&limits{batchBytes: cas.BatchBytes})
		code.Store(&c.code)
		large := digest.Of(digest.SHA256, servertest.Bytes(1, 2*cas.StreamAbove))
		for what, call := range map[string]func() error{
			"find":   func() error { return second(client.FindMissing(t.Context(), []digest.Digest{netSHA})) },
			"read":   func() error { return second(client.Read(t.Context(), netSHA)) },
			"stream": func() error { return second(client.Read(t.Context(), large)) },
			"upload": func() error {
				return client.Upload(t.Context(), []Blob{BytesBlob(netSHA, []byte("abc"))}, nil)
			},
			"result": func() error { return second(client.GetActionResult(t.Context(), netSHA)) },
			"tree":   func() error { return second(client.GetTree(t.Context(), netSHA)) },
		} {
			calls.Store(0)
			err := call()
			if st, ok := status.FromError(err); !ok || st.Code() != c.want {
				t.Errorf("%s, %s: %v", what, c.name, err)
			}
			if n := calls.Load(); c.calls > 0 && n != c.calls {
				t.Errorf("%s, %s: %d calls, want %d", what, c.name, n, c.calls)
			}
		}
	}
}

// A server that stops answering is noticed.
func TestClientNoticesAStall(t *testing.T) {
	hang := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	f := servertest.Start(t, servertest.Config{
		Unary: func(ctx context.Context, _ any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
			return nil, hang(ctx)
		},
		Stream: func(_ any, s grpc.ServerStream, _ *grpc.StreamServerInfo, _ grpc.StreamHandler) error {
			return hang(s.Context())
		},
	})
	client := clientOf(f, Options{StallAfter: 20 * time.Millisecond, RetryFor: 50 * time.Millisecond})
	client.link.known.Store(&limits{batchBytes: 10})
	for what, err := range map[string]error{
		"read":   second(client.Read(t.Context(), netSHA)),
		"stream": second(client.Read(t.Context(), digest.Of(digest.SHA256, servertest.Bytes(1, 100)))),
		"tree":   second(client.GetTree(t.Context(), netSHA)),
	} {
		if code := status.Code(err); code != codes.DeadlineExceeded && code != codes.Unavailable {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestBudgetPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logged := observer.New(zap.WarnLevel)
		l := &link{options: Options{RetryFor: time.Minute}, firstPause: 100 * time.Millisecond, log: zap.New(core)}
		b := l.newBudget()
		begin := time.Now()
		want := 100 * time.Millisecond
		for range 8 {
			before := time.Now()
			if err := b.pause(t.Context(), errNetBroken); err != nil {
				t.Fatal(err)
			}
			if d := time.Since(before); d < want/2 || d > want {
				t.Errorf("paused %s, want up to %s", d, want)
			}
			want = min(2*want, longestPause)
		}
		for b.pause(t.Context(), errNetBroken) == nil {
			continue
		}
		if d := time.Since(begin); d > time.Minute || d < 50*time.Second {
			t.Errorf("gave up after %s", d)
		}
		if n := logged.FilterMessage("storage does not answer; trying again").Len(); n != 1 {
			t.Errorf("a minute without answers is logged %d times", n)
		}

		b.progress()
		asks, err := status.New(codes.PermissionDenied, "later").WithDetails(
			&errdetails.RetryInfo{RetryDelay: durationpb.New(42 * time.Second)})
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		if err := b.pause(t.Context(), asks.Err()); err != nil || time.Since(before) != 42*time.Second {
			t.Errorf("paused %s, %v", time.Since(before), err)
		}
		for _, final := range []error{
			errors.New("disk"), status.Error(codes.NotFound, ""),
			status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5 vs. 4)"),
		} {
			before := time.Now()
			if err := b.pause(t.Context(), final); !errors.Is(err, final) || time.Since(before) != 0 {
				t.Errorf("%v: %v after %s", final, err, time.Since(before))
			}
		}
	})
}
