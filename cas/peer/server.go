package peer

import (
	"context"
	"sync/atomic"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/intake"
)

// maxCalls bounds the calls that a Server answers at a time.
const maxCalls = 32

// A Server lets other workers read the blobs of a Store: it serves FindMissingBlobs, BatchReadBlobs
// and ByteStream's Read, uncompressed; all other methods are UNIMPLEMENTED.
//
// Whole blobs are hashed while they are read. Reads by peers do not count as use: they neither
// evict what the Store's own users need nor keep blobs from being evicted. Calls beyond a bound end
// at once with RESOURCE_EXHAUSTED. A Server has no goroutines and needs no closing.
type Server struct {
	reader       *server.Reader
	slots        chan struct{} // a token for each call
	blobs, bytes atomic.Int64
}

// NewServer returns a Server of store. The caller closes the store after the gRPC server has
// stopped.
func NewServer(store Store, log *zap.Logger) *Server {
	s := &Server{slots: make(chan struct{}, maxCalls)}
	s.reader = server.NewReader(store.Peek(func(d digest.Digest) {
		s.blobs.Add(1)
		s.bytes.Add(d.SizeBytes())
	}), server.Options{Logger: log, WaitForMemory: intake.Reserve})
	return s
}

// A Store is the part of a store that a Server reads.
type Store interface {
	// Peek returns the same blobs, but reads do not count as uses. opened is called for each blob
	// that is opened.
	Peek(opened func(d digest.Digest)) cas.Readable
}

// Register adds the services to g.
func (s *Server) Register(g grpc.ServiceRegistrar) {
	repb.RegisterContentAddressableStorageServer(g, &storageService{s: s})
	g.RegisterService(server.ByteStreamDesc(), &byteStreamService{s: s})
}

// Served returns how many blobs and bytes the Server has sent.
func (s *Server) Served() (blobs, bytes int64) { return s.blobs.Load(), s.bytes.Load() }

// begin admits a call; the caller calls end after it.
func (s *Server) begin() (end func(), err error) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	default:
		return nil, status.Errorf(codes.ResourceExhausted, "%d calls of other workers are in progress: read from storage", maxCalls)
	}
}

// storageService is the part of REv2's ContentAddressableStorage that reads blobs.
type storageService struct {
	repb.UnimplementedContentAddressableStorageServer
	s *Server
}

// FindMissingBlobs implements repb.ContentAddressableStorageServer.
func (v *storageService) FindMissingBlobs(
	ctx context.Context, r *repb.FindMissingBlobsRequest,
) (*repb.FindMissingBlobsResponse, error) {
	end, err := v.s.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	return v.s.reader.FindMissingBlobs(ctx, r)
}

// BatchReadBlobs implements repb.ContentAddressableStorageServer. Nothing is compressed.
func (v *storageService) BatchReadBlobs(
	ctx context.Context, r *repb.BatchReadBlobsRequest,
) (*repb.BatchReadBlobsResponse, error) {
	end, err := v.s.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	return v.s.reader.BatchReadBlobs(ctx, r)
}

// byteStreamService is the part of ByteStream that reads.
type byteStreamService struct {
	bytestream.UnimplementedByteStreamServer
	s *Server
}

// Read implements bytestream.ByteStreamServer.
func (v *byteStreamService) Read(r *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	end, err := v.s.begin()
	if err != nil {
		return err
	}
	defer end()
	return v.s.reader.Read(r, stream)
}
