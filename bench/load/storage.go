package load

import (
	"context"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// A Storage is a storage in memory with the actions and commands of a load. It has no results.
type Storage struct {
	repb.UnimplementedContentAddressableStorageServer
	repb.UnimplementedActionCacheServer
	Blobs map[string][]byte // by hash
}

// NewStorage returns a storage with the actions of a load.
func NewStorage(l *Load) *Storage {
	s := &Storage{Blobs: make(map[string][]byte, 2*len(l.Actions))}
	for _, a := range l.Actions {
		s.Blobs[a.Digest.Proto().GetHash()] = a.action
		s.Blobs[a.commandDigest.Proto().GetHash()] = a.command
	}
	return s
}

// Register registers the services of the storage.
func (s *Storage) Register(g *grpc.Server) {
	repb.RegisterContentAddressableStorageServer(g, s)
	repb.RegisterActionCacheServer(g, s)
	repb.RegisterCapabilitiesServer(g, loadCapabilities{})
}

// BatchReadBlobs implements repb.ContentAddressableStorageServer.
func (s *Storage) BatchReadBlobs(
	_ context.Context, r *repb.BatchReadBlobsRequest,
) (*repb.BatchReadBlobsResponse, error) {
	answer := &repb.BatchReadBlobsResponse{}
	for _, d := range r.GetDigests() {
		b, ok := s.Blobs[d.GetHash()]
		e := &repb.BatchReadBlobsResponse_Response{Digest: d, Data: b}
		if !ok {
			e.Status = status.New(codes.NotFound, "no such blob").Proto()
		}
		answer.Responses = append(answer.Responses, e)
	}
	return answer, nil
}

// GetActionResult implements repb.ActionCacheServer.
func (s *Storage) GetActionResult(context.Context, *repb.GetActionResultRequest) (*repb.ActionResult, error) {
	return nil, status.Error(codes.NotFound, "nothing is cached")
}

// loadCapabilities serves the capabilities of a Storage.
type loadCapabilities struct {
	repb.UnimplementedCapabilitiesServer
}

// GetCapabilities implements repb.CapabilitiesServer.
func (loadCapabilities) GetCapabilities(
	context.Context, *repb.GetCapabilitiesRequest,
) (*repb.ServerCapabilities, error) {
	return &repb.ServerCapabilities{CacheCapabilities: &repb.CacheCapabilities{
		DigestFunctions:        []repb.DigestFunction_Value{digest.SHA256.Proto()},
		MaxBatchTotalSizeBytes: 4 << 20,
	}}, nil
}
