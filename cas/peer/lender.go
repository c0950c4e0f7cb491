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

// maxLoans bounds the calls that a Lender answers at a time.
const maxLoans = 32

// A Lender lets others read what is in a Store now: it serves FindMissingBlobs, BatchReadBlobs and
// ByteStream's Read, as it is on disk; all other methods are UNIMPLEMENTED. A Neighbour is who asks it.
//
// What is lent whole is hashed while it is read. To be lent does not count as a use: what others
// read has nothing evicted that the Store's own users need, nor does it stay for them. Of calls beyond a bound
// each is answered at once with RESOURCE_EXHAUSTED. A Lender has no goroutines and needs no closing.
type Lender struct {
	reader       *server.Reader
	slots        chan struct{} // a token for each call
	blobs, bytes atomic.Int64
}

// NewLender returns a Lender of s, which stays the caller's to close after the gRPC server has stopped.
func NewLender(s Lent, log *zap.Logger) *Lender {
	l := &Lender{slots: make(chan struct{}, maxLoans)}
	l.reader = server.NewReader(s.Peek(func(d digest.Digest) {
		l.blobs.Add(1)
		l.bytes.Add(d.SizeBytes())
	}), server.Options{Logger: log, Room: intake.Reserve})
	return l
}

// Lent is what can be lent.
type Lent interface {
	// Peek returns the same blobs, on which reading leaves no trace; opened is called for each that is opened.
	Peek(opened func(d digest.Digest)) cas.Readable
}

// Register adds the services to g.
func (l *Lender) Register(g grpc.ServiceRegistrar) {
	repb.RegisterContentAddressableStorageServer(g, &lentStorage{l: l})
	g.RegisterService(server.ByteStreamDesc(), &lentStreams{l: l})
}

// Lent returns how many blobs, and bytes of them, were read until now.
func (l *Lender) Lent() (blobs, bytes int64) { return l.blobs.Load(), l.bytes.Load() }

// begin admits a call; the caller calls end after it.
func (l *Lender) begin() (end func(), err error) {
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	default:
		return nil, status.Errorf(codes.ResourceExhausted, "%d calls of other workers are in progress: read from storage", maxLoans)
	}
}

// lentStorage is the part of REv2's ContentAddressableStorage that reads blobs.
type lentStorage struct {
	repb.UnimplementedContentAddressableStorageServer
	l *Lender
}

// FindMissingBlobs implements repb.ContentAddressableStorageServer.
func (v *lentStorage) FindMissingBlobs(
	ctx context.Context, r *repb.FindMissingBlobsRequest,
) (*repb.FindMissingBlobsResponse, error) {
	end, err := v.l.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	return v.l.reader.FindMissingBlobs(ctx, r)
}

// BatchReadBlobs implements repb.ContentAddressableStorageServer. Nothing is compressed.
func (v *lentStorage) BatchReadBlobs(
	ctx context.Context, r *repb.BatchReadBlobsRequest,
) (*repb.BatchReadBlobsResponse, error) {
	end, err := v.l.begin()
	if err != nil {
		return nil, err
	}
	defer end()
	return v.l.reader.BatchReadBlobs(ctx, r)
}

// lentStreams is the part of ByteStream that reads.
type lentStreams struct {
	bytestream.UnimplementedByteStreamServer
	l *Lender
}

// Read implements bytestream.ByteStreamServer.
func (v *lentStreams) Read(r *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	end, err := v.l.begin()
	if err != nil {
		return err
	}
	defer end()
	return v.l.reader.Read(r, stream)
}
