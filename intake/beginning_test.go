package intake

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestBeginnings has calls whose handlers get no further, as if they had no processor: a few
// connections bring as many as there is memory for, and no more. When the handlers go on, all calls
// come, and are answered.
func TestBeginnings(t *testing.T) {
	const room, connections, calls = 5, 3, 20
	synctest.Test(t, func(t *testing.T) {
		b := BoundsFor(200_000_000)
		b.Beginnings = room * (callBytes + int64(b.Window) + smallFrameBytes)
		var looked, answered atomic.Int64
		turn := make(chan struct{})
		o := Options{
			Bounds: b,
			Look: func(ctx context.Context, _ string) (context.Context, error) {
				looked.Add(1)
				return ctx, nil
			},
			OuterUnary: []grpc.UnaryServerInterceptor{
				func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
					<-turn
					return handler(ctx, req)
				},
			},
		}
		dial, s := serveRude(t, o)
		for range connections {
			r := dial()
			go func() {
				for range calls {
					if r.health() != nil || r.flush() != nil {
						return
					}
				}
			}()
			go func() {
				for {
					f, err := r.ReadFrame()
					if err != nil {
						return
					}
					if h, ok := f.(*http2.HeadersFrame); ok && h.StreamEnded() {
						answered.Add(1)
					}
				}
			}()
		}
		synctest.Wait()
		if n := looked.Load(); n > room+connections {
			t.Errorf("there is room for %d calls, and %d were taken in", room, n)
		}
		close(turn)
		synctest.Wait()
		if n := answered.Load(); n != connections*calls {
			t.Errorf("%d of %d calls were answered", n, connections*calls)
		}
		if !s.begins.bytes.TryAcquire(s.begins.size) {
			t.Error("calls that have ended take up room")
		}
	})
}

// TestBeginningsEnd: the cost of a call is charged before its handler waits for anything.
func TestBeginningsEnd(t *testing.T) {
	forever := func(ctx context.Context, _ string) (context.Context, Caller, error) {
		<-ctx.Done()
		return ctx, Caller{}, ctx.Err()
	}
	guest := func(context.Context, string) string { return "guest" }
	for name, c := range map[string]struct {
		options Options
		method  string
		uploads int64
	}{
		"its request":  {method: check},
		"who makes it": {method: check, options: Options{Pending: guest, Identify: forever}},
		"room":         {method: "/test.Upload/Put", uploads: uploadBytes},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, b := c.options, BoundsFor(200_000_000)
				b.Beginnings = 0 // room for one
				b.Uploads, b.UploadsOfOne = c.uploads, c.uploads
				o.Bounds = b
				dial, s := serveRude(t, o)
				for range 3 {
					r := dial()
					must(t, r.headers(callOf(c.method)...))
					must(t, r.flush())
				}
				synctest.Wait()
				if !s.begins.bytes.TryAcquire(s.begins.size) {
					t.Error("there is no room")
				}
			})
		})
	}
}

// TestLateBeginnings: a call whose time is over has no error until it has a handler, so that it
// gets one.
func TestLateBeginnings(t *testing.T) {
	s := newBeginnings(Bounds{})
	ctx, cancel := context.WithCancel(t.Context())
	begun, err := s.enter(ctx, nil)
	must(t, err)
	cancel()
	if err := begun.Err(); err != nil {
		t.Errorf("gRPC would not begin a call: %v", err)
	}
	if err := handled(begun); status.Code(err) != codes.Canceled || begun.Err() == nil {
		t.Errorf("the handler of a call that has ended: %v", err)
	}
	if _, err := s.enter(ctx, nil); status.Code(err) != codes.Canceled {
		t.Errorf("a call that ends while it waits for room: %v", err)
	}
	for range 2 {
		charged(begun)
	}
	if !s.bytes.TryAcquire(s.size) {
		t.Error("it takes up room")
	}
}
