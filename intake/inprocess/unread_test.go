package inprocess

import (
	"context"
	"testing"
	"testing/synctest"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// TestUnread: a sender waits for a receiver that does not look, and keeps one message; it ends when
// the call is cancelled, in either direction.
func TestUnread(t *testing.T) {
	for _, answers := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			sent, last := 0, error(nil)
			send := func(send func(any) error) {
				for last == nil {
					if last = send(&repb.Digest{Hash: "x"}); last == nil {
						sent++
					}
				}
			}
			s := NewServer(Options{})
			s.RegisterService(&grpc.ServiceDesc{ServiceName: "s", Streams: []grpc.StreamDesc{{
				StreamName: "m", ServerStreams: true, ClientStreams: true,
				Handler: func(_ any, stream grpc.ServerStream) error {
					if answers {
						send(stream.SendMsg)
						return last
					}
					<-stream.Context().Done()
					return nil
				},
			}}}, nil)
			ctx, cancel := context.WithCancel(t.Context())
			stream, err := s.Dial(peer.Peer{}, ConnOptions{}).NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/s/m")
			if err != nil {
				t.Fatal(err)
			}
			if !answers {
				go send(stream.SendMsg)
			}
			synctest.Wait()
			if sent != 1 || last != nil {
				t.Errorf("answers %t: %d messages are kept, %v", answers, sent, last)
			}
			cancel()
			s.GracefulStop()
			synctest.Wait()
			if last == nil || sent != 1 {
				t.Errorf("answers %t: after the end %d messages, %v", answers, sent, last)
			}
			if err := stream.RecvMsg(&repb.Digest{}); answers && err != nil {
				t.Error(err) // the message that was kept
			}
			if err := stream.RecvMsg(&repb.Digest{}); status.Code(err) != codes.Canceled {
				t.Errorf("answers %t: it ends with %v", answers, err)
			}
		})
	}
}
