package server

import (
	"context"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"

	"github.com/forerunner-build/forerunner/cas"
)

// A Reader serves read-only callers as a Server does, for any instance name. It is for programs
// that serve only a part of a Server.
type Reader struct{ server *Server }

// NewReader returns a Reader of blobs. It uses the logger and limits of o.
func NewReader(blobs cas.Readable, o Options) *Reader {
	o.validate()
	return &Reader{&Server{shared: blobs, options: o, log: o.Logger}}
}

// FindMissingBlobs implements REv2's ContentAddressableStorage.
func (r *Reader) FindMissingBlobs(
	ctx context.Context, req *repb.FindMissingBlobsRequest,
) (*repb.FindMissingBlobsResponse, error) {
	return (&storageService{s: r.server}).FindMissingBlobs(ctx, req)
}

// BatchReadBlobs implements REv2's ContentAddressableStorage. Nothing is compressed.
func (r *Reader) BatchReadBlobs(
	ctx context.Context, req *repb.BatchReadBlobsRequest,
) (*repb.BatchReadBlobsResponse, error) {
	req.AcceptableCompressors = nil
	return (&storageService{s: r.server}).BatchReadBlobs(ctx, req)
}

// Read implements ByteStream.
func (r *Reader) Read(req *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	return (&byteStreamService{s: r.server}).Read(req, stream)
}
