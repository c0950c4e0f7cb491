package client

import (
	"bytes"
	"context"
	"errors"
	"path"
	"sync/atomic"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
)

// wrongly has a server spoil its first answers about blobs, as spoil and its streams, and counts
// all.
func wrongly(first int32, spoil func(*repb.BatchReadBlobsResponse_Response)) (servertest.Config, *atomic.Int32) {
	answers := new(atomic.Int32)
	unary := func(ctx context.Context, r any, info *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
		answer, err := call(ctx, r)
		if path.Base(info.FullMethod) == "BatchReadBlobs" && answers.Add(1) <= first {
			for _, e := range answer.(*repb.BatchReadBlobsResponse).GetResponses() {
				spoil(e)
			}
		}
		return answer, err
	}
	stream := onMethod("Read", func(s *netStream) {
		wrong := answers.Add(1) <= first
		s.sending = func(m any) error {
			if data := m.(*bytestream.ReadResponse).GetData(); wrong {
				data[len(data)/2] ^= 1
			}
			return nil
		}
	})
	return servertest.Config{Unary: unary, Stream: stream}, answers
}

func TestWhatComesWrongIsAskedForAgain(t *testing.T) {
	flip := func(e *repb.BatchReadBlobsResponse_Response) {
		e.Data = append(bytes.Clone(e.GetData()[1:]), e.GetData()[0]+1)
	}
	spoils := map[string]func(*repb.BatchReadBlobsResponse_Response){
		"flipped": flip,
		"cut":     func(e *repb.BatchReadBlobsResponse_Response) { e.Data = e.GetData()[1:] },
		"no zstd": func(e *repb.BatchReadBlobsResponse_Response) { e.Compressor = repb.Compressor_ZSTD },
		"damaged": func(e *repb.BatchReadBlobsResponse_Response) {
			e.Data, e.Status = nil, status.New(codes.DataLoss, "it is damaged").Proto()
		},
		"nonsense": func(e *repb.BatchReadBlobsResponse_Response) { e.Digest = &repb.Digest{Hash: "nonsense"} },
	}
	for what, spoil := range spoils {
		for _, size := range []int{900, cas.StreamAbove + 1} {
			for first := range int32(maxWrong) {
				config, answers := wrongly(first, spoil)
				f := servertest.Start(t, config)
				data := netNoise(size)
				d := f.Put(t, digest.SHA256, data)
				got, err := clientOf(f, Options{NoCompression: true}).Read(t.Context(), d)
				if err != nil || !bytes.Equal(got, data) || answers.Load() != first+1 {
					t.Errorf("%s %d times, %d bytes: %d bytes in %d answers, %v", what, first, size, len(got), answers.Load(), err)
				}
			}
		}
	}
	for _, size := range []int{900, cas.StreamAbove + 1} {
		config, answers := wrongly(1000, flip)
		f := servertest.Start(t, config)
		d := f.Put(t, digest.SHA256, netNoise(size))
		for _, o := range []struct {
			retry time.Duration
			want  int32
		}{{time.Minute, maxWrong}, {time.Nanosecond, 1}} {
			answers.Store(0)
			_, err := clientOf(f, Options{NoCompression: true, RetryFor: o.retry}).Read(t.Context(), d)
			if !errors.Is(err, cas.ErrCorrupt) || answers.Load() != o.want {
				t.Errorf("always wrong, %d bytes: %v after %d answers, want %d", size, err, answers.Load(), o.want)
			}
		}
	}
}
