package intake

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// A patient is a service whose calls last until their connection has ended, and then tell whether
// their clients cancelled them.
type patient struct {
	healthpb.UnimplementedHealthServer
	began     chan struct{}
	cancelled chan bool
}

func (p *patient) Watch(_ *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	p.began <- struct{}{}
	<-stream.Context().Done()
	<-arrivedThrough(stream.Context()).done.Done()
	p.cancelled <- Cancelled(stream.Context())
	return nil
}

// TestCancelled has clients cancel a call, and end their connection before its handler looks; others
// only end the connection, or reset the call for another reason, or cancel another call.
func TestCancelled(t *testing.T) {
	p := &patient{began: make(chan struct{}), cancelled: make(chan bool)}
	addr, _ := serveThroughGate(t, BoundsFor(1<<30), func(s *Server) { healthpb.RegisterHealthServer(s, p) })
	const first, second = 1, 3
	for name, c := range map[string]struct {
		last func(r *rude) error
		want int
	}{
		"nothing":        {func(*rude) error { return nil }, 0},
		"cancel":         {func(r *rude) error { return r.WriteRSTStream(first, http2.ErrCodeCancel) }, 1},
		"cancel another": {func(r *rude) error { return r.WriteRSTStream(second, http2.ErrCodeCancel) }, 1},
		"cancel both": {func(r *rude) error {
			return errors.Join(r.WriteRSTStream(second, http2.ErrCodeCancel), r.WriteRSTStream(first, http2.ErrCodeCancel))
		}, 2},
		"another reason": {func(r *rude) error { return r.WriteRSTStream(first, http2.ErrCodeInternal) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := dialRude(t, addr)
			must(t, r.WriteSettings())
			for _, stream := range []uint32{first, second} {
				must(t, errors.Join(r.headers(callOf(healthpb.Health_Watch_FullMethodName)...), r.WriteData(stream, true, make([]byte, 5)), r.flush()))
				<-p.began
			}
			// If it did not read, its system would tell the server to forget what it has not read.
			must(t, errors.Join(c.last(r), r.flush(), r.conn.(*net.TCPConn).CloseWrite()))
			got := 0
			for range 2 {
				if <-p.cancelled {
					got++
				}
			}
			if got != c.want {
				t.Errorf("%d calls count as cancelled, want %d", got, c.want)
			}
		})
	}
}
