package cas

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// maxLoans bounds the calls that a Lender answers at a time.
const maxLoans = 32

// readable is what blobs are read from.
type readable interface {
	FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error)
	OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error)
	// ReadBlob hashes what it returns.
	ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error)
	// Who reads all of what OpenBlob opened tells the store what came of it: that it was
	// right, or that d is to be looked at.
	noteSound(d digest.Digest, p proof)
	verdict(ctx context.Context, d digest.Digest) error
}

// A Lender lets others read what is in a Store now: it serves FindMissingBlobs, BatchReadBlobs and
// ByteStream's Read, as it is on disk; all other methods are UNIMPLEMENTED. A Neighbour is who asks it.
//
// What is lent whole is hashed while it is read. To be lent does not count as a use: what others
// read has nothing evicted that the Store's own users need, nor does it stay for them. Of calls beyond a bound
// each is answered at once with RESOURCE_EXHAUSTED. A Lender has no goroutines and needs no closing.
type Lender struct {
	server       *Server
	slots        chan struct{} // a token for each call
	blobs, bytes atomic.Int64
}

// NewLender returns a Lender of s, which stays the caller's to close after the gRPC server has stopped.
func NewLender(s *Store, log *zap.Logger) *Lender {
	l := &Lender{slots: make(chan struct{}, maxLoans)}
	o := ServerOptions{Logger: log}
	o.validate()
	l.server = &Server{lends: lent{s, l}, options: o, log: o.Logger}
	return l
}

// Register adds the services to g.
func (l *Lender) Register(g grpc.ServiceRegistrar) {
	repb.RegisterContentAddressableStorageServer(g, &lentStorage{l: l})
	g.RegisterService(byteStreamDesc(), &lentStreams{l: l})
}

// Lent returns how many blobs, and bytes of them, were read until now.
func (l *Lender) Lent() (blobs, bytes int64) { return l.blobs.Load(), l.bytes.Load() }

// begin admits a call; the caller calls end after it.
func (l *Lender) begin() (end func(), err error) {
	select {
	case l.slots <- struct{}{}:
		return func() { <-l.slots }, nil
	default:
		return nil, status.Errorf(codes.ResourceExhausted, "%d others are being lent to: read from storage", maxLoans)
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
	return (&storageService{s: v.l.server}).FindMissingBlobs(ctx, r)
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
	r.AcceptableCompressors = nil
	return (&storageService{s: v.l.server}).BatchReadBlobs(ctx, r)
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
	return (&byteStreamService{s: v.l.server}).Read(r, stream)
}

// lent is a Store on which reading leaves no trace.
type lent struct {
	store *Store
	l     *Lender
}

// FindMissing implements readable.
func (v lent) FindMissing(ctx context.Context, ds []digest.Digest) (missing []digest.Digest, _ error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("find missing blobs: %w", err)
	}
	for _, d := range ds {
		if !d.IsEmptyBlob() && !v.store.files.contains(d) {
			missing = append(missing, d)
		}
	}
	return missing, nil
}

// OpenBlob implements readable.
func (v lent) OpenBlob(ctx context.Context, d digest.Digest) (*os.File, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open blob %s: %w", d, err)
	}
	if d.IsEmptyBlob() {
		return v.store.open(d)
	}
	file, err := v.store.files.peek(d)
	if errors.Is(err, ErrNotFound) {
		return nil, &MissingError{Digests: []digest.Digest{d}}
	}
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", d, err)
	}
	v.l.blobs.Add(1)
	v.l.bytes.Add(d.SizeBytes())
	return file, nil
}

// ReadBlob implements readable.
func (v lent) ReadBlob(ctx context.Context, d digest.Digest) ([]byte, error) {
	return readSound(ctx, d, v.store, func() ([]byte, uint64, error) {
		file, err := v.OpenBlob(ctx, d)
		if err != nil {
			return nil, 0, err
		}
		return readAll(file, d)
	})
}

func (v lent) noteSound(d digest.Digest, p proof) { v.store.noteSound(d, p) }

func (v lent) verdict(ctx context.Context, d digest.Digest) error { return v.store.verdict(ctx, d) }
