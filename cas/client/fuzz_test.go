package client

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// A rawConn is a connection to a server that answers every request with given bytes.
type rawConn struct {
	capabilities []byte

	mu      sync.Mutex
	answers [][]byte // answers of all calls; guarded by mu
}

// next decodes the next answer.
func (c *rawConn) next(m any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.answers) == 0 {
		return io.EOF
	}
	answer := c.answers[0]
	c.answers = c.answers[1:]
	if err := proto.Unmarshal(answer, m.(proto.Message)); err != nil {
		return status.Error(codes.Internal, err.Error())
	}
	return nil
}

func (c *rawConn) Invoke(_ context.Context, method string, _, reply any, _ ...grpc.CallOption) error {
	if strings.HasSuffix(method, "/GetCapabilities") {
		return proto.Unmarshal(c.capabilities, reply.(proto.Message))
	}
	if err := c.next(reply); err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	return nil
}

func (c *rawConn) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	return &rawStream{rawConn: c, ctx: ctx}, nil
}

type rawStream struct {
	*rawConn
	ctx context.Context
}

func (s *rawStream) Header() (metadata.MD, error) { return nil, nil }
func (s *rawStream) Trailer() metadata.MD         { return nil }
func (s *rawStream) CloseSend() error             { return nil }
func (s *rawStream) Context() context.Context     { return s.ctx }
func (s *rawStream) SendMsg(any) error            { return nil }
func (s *rawStream) RecvMsg(m any) error          { return s.next(m) }

// FuzzClient has a server send arbitrary answers. The Client must deliver only requested blobs.
func FuzzClient(f *testing.F) {
	small, large := []byte("text"), bytes.Repeat([]byte("large"), 1<<18)
	tree := encoded(f, &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "b", Digest: digest.SHA256.Empty().Proto()}}})
	blobs := map[digest.Digest][]byte{}
	var all []digest.Digest
	for _, b := range [][]byte{small, large, tree} {
		d := digest.Of(digest.SHA256, b)
		blobs[d], all = b, append(all, d)
	}
	f.Add([]byte{}, byte(0), encoded(f, &repb.FindMissingBlobsResponse{MissingBlobDigests: []*repb.Digest{all[0].Proto()}}), []byte{})
	f.Add([]byte{}, byte(0), encoded(f, &repb.FindMissingBlobsResponse{MissingBlobDigests: []*repb.Digest{{Hash: "x"}, digest.Of(digest.SHA256, []byte("other")).Proto()}}), []byte{})
	batch := encoded(f, &repb.BatchReadBlobsResponse{Responses: []*repb.BatchReadBlobsResponse_Response{
		{Digest: all[0].Proto(), Data: small}, {Digest: all[2].Proto(), Data: wire.NewBatchEncoder().EncodeAll(tree, nil), Compressor: repb.Compressor_ZSTD},
	}})
	stream := encoded(f, &bytestream.ReadResponse{Data: large[:1<<20]})
	compressed := encoded(f, &bytestream.ReadResponse{Data: wire.NewBatchEncoder().EncodeAll(large, nil)})
	zstd := encoded(f, &repb.ServerCapabilities{CacheCapabilities: &repb.CacheCapabilities{
		SupportedCompressors: []repb.Compressor_Value{repb.Compressor_ZSTD}, MaxBatchTotalSizeBytes: -1, MaxCasBlobSizeBytes: 1,
	}})
	for operation := range byte(5) {
		f.Add([]byte{}, operation, batch, stream)
		f.Add([]byte{}, operation, stream, encoded(f, &bytestream.ReadResponse{Data: large[1<<20:]}))
		f.Add(zstd, operation, compressed, batch)
	}
	f.Add([]byte{}, byte(3), encoded(f, &repb.GetTreeResponse{Directories: []*repb.Directory{{Directories: []*repb.DirectoryNode{{Name: "b", Digest: digest.SHA256.Empty().Proto()}}}}}), []byte{})
	f.Add([]byte{}, byte(3), encoded(f, &repb.GetTreeResponse{NextPageToken: "x"}), encoded(f, &repb.GetTreeResponse{Directories: []*repb.Directory{{}, {}}}))
	f.Add([]byte{}, byte(4), encoded(f, &bytestream.WriteResponse{CommittedSize: -1}), encoded(f, &repb.BatchUpdateBlobsResponse{}))
	f.Fuzz(func(t *testing.T, capabilities []byte, operation byte, first, second []byte) {
		if proto.Unmarshal(capabilities, &repb.ServerCapabilities{}) != nil {
			return
		}
		client := New(&rawConn{capabilities: capabilities, answers: [][]byte{first, second}}, Options{RetryFor: time.Nanosecond})
		switch operation % 5 {
		case 0:
			missing, err := client.FindMissing(t.Context(), all)
			for _, d := range missing {
				if !slices.Contains(all, d) {
					t.Errorf("%s is missing, which nobody asked for, %v", d, err)
				}
			}
		case 1:
			for _, d := range all {
				if b, err := client.Read(t.Context(), d); err == nil && !bytes.Equal(b, blobs[d]) {
					t.Errorf("%s is %d other bytes", d, len(b))
				}
			}
		case 2:
			_ = client.Fetch(t.Context(), all, func(d digest.Digest, r io.Reader) error {
				b, err := io.ReadAll(r)
				if err == nil && !bytes.Equal(b, blobs[d]) {
					t.Errorf("%s is %d other bytes", d, len(b))
				}
				return err
			})
		case 3:
			dirs, err := client.GetTree(t.Context(), all[2])
			if err == nil {
				if got, _, err := digest.OfMessage(digest.SHA256, dirs[0]); err != nil || got != all[2] {
					t.Errorf("the tree of %s begins with %s, %v", all[2], got, err)
				}
			}
		case 4:
			_ = client.Upload(t.Context(), []Blob{BytesBlob(all[0], small), BytesBlob(all[1], large)}, nil)
			_, _ = client.GetActionResult(t.Context(), all[0])
		}
	})
}

func encoded(t testing.TB, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
