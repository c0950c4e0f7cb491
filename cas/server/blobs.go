package server

import (
	"context"
	"fmt"
	"slices"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// storageService is REv2's ContentAddressableStorage. SplitBlob and SpliceBlob
// are not announced and answer UNIMPLEMENTED.
type storageService struct {
	repb.UnimplementedContentAddressableStorageServer
	s *Server
}

// FindMissingBlobs answers for each digest once, in the order of the request. If the caller is
// about to name these blobs in a result, unverified ones are hashed; otherwise only those whose
// files were changed.
func (v *storageService) FindMissingBlobs(
	ctx context.Context, r *repb.FindMissingBlobsRequest,
) (*repb.FindMissingBlobsResponse, error) {
	fn, err := request(r.GetInstanceName(), r.GetDigestFunction())
	if err != nil {
		return nil, v.s.readStatus(err)
	}
	ds := make([]digest.Digest, 0, len(r.GetBlobDigests()))
	seen := make(map[digest.Digest]struct{}, len(r.GetBlobDigests()))
	for _, m := range r.GetBlobDigests() {
		if m.GetHash() == "" && m.GetSizeBytes() == 0 {
			continue // an empty digest, which Please sends for symlinks
		}
		d, err := digest.FromProto(fn, m)
		if err != nil {
			return nil, v.s.readStatus(err)
		}
		if _, twice := seen[d]; twice || d.IsEmptyBlob() {
			continue
		}
		seen[d] = struct{}{}
		ds = append(ds, d)
	}
	missing, err := v.s.findMissing(ctx, r.GetInstanceName(), ds)
	if err != nil {
		return nil, v.s.readStatus(err)
	}
	return &repb.FindMissingBlobsResponse{MissingBlobDigests: protosOf(missing)}, nil
}

func protosOf(ds []digest.Digest) []*repb.Digest {
	ms := make([]*repb.Digest, len(ds))
	for i, d := range ds {
		ms[i] = d.Proto()
	}
	return ms
}

// entryBytes is the memory of the answer to one blob of a batch, beside the blob: a digest and a
// status with its text, which are encoded once more.
const entryBytes = 1 << 10

// BatchUpdateBlobs stores each blob separately and returns one status for each.
func (v *storageService) BatchUpdateBlobs(
	ctx context.Context, r *repb.BatchUpdateBlobsRequest,
) (*repb.BatchUpdateBlobsResponse, error) {
	fn, err := request(r.GetInstanceName(), r.GetDigestFunction())
	if err != nil {
		return nil, v.s.writeStatus(err)
	}
	if err := v.s.checkBatch(len(r.GetRequests()), func(i int) int64 {
		e := r.GetRequests()[i]
		return max(int64(len(e.GetData())), e.GetDigest().GetSizeBytes())
	}); err != nil {
		return nil, err
	}
	if err := v.s.options.WaitForMemory(ctx, unpacked(r.GetRequests())+entryBytes*int64(len(r.GetRequests()))); err != nil {
		return nil, err
	}
	resp := &repb.BatchUpdateBlobsResponse{}
	blobs := v.s.content(r.GetInstanceName())
	for _, e := range r.GetRequests() {
		err := v.update(ctx, r.GetInstanceName(), blobs, fn, e)
		if ctx.Err() != nil {
			return nil, v.s.writeStatus(ctx.Err())
		}
		resp.Responses = append(resp.Responses, &repb.BatchUpdateBlobsResponse_Response{
			Digest: e.GetDigest(),
			Status: status.Convert(v.s.writeStatus(err)).Proto(),
		})
	}
	return resp, nil
}

// unpacked returns the uncompressed size of the compressed blobs of a batch.
func unpacked(all []*repb.BatchUpdateBlobsRequest_Request) (bytes int64) {
	for _, e := range all {
		if e.GetCompressor() == repb.Compressor_ZSTD {
			bytes += max(e.GetDigest().GetSizeBytes(), 0)
		}
	}
	return bytes
}

// checkBatch refuses batches whose n blobs together exceed the limit.
func (s *Server) checkBatch(n int, size func(int) int64) error {
	left := s.options.MaxBatchBytes
	for i := range n {
		// Compared before it is subtracted, so that no sum overflows.
		if size(i) > left {
			return status.Errorf(codes.InvalidArgument,
				"the blobs of this batch are larger than the limit of %d bytes, use ByteStream", s.options.MaxBatchBytes)
		}
		left -= max(size(i), 0)
	}
	return nil
}

func (v *storageService) update(
	ctx context.Context, instance string, blobs cas.Content, fn digest.Function, e *repb.BatchUpdateBlobsRequest_Request,
) error {
	d, err := digest.FromProto(fn, e.GetDigest())
	if err != nil {
		return err
	}
	if err := v.s.checkUploadSize(d); err != nil {
		return err
	}
	data := e.GetData()
	switch e.GetCompressor() {
	case repb.Compressor_IDENTITY:
	case repb.Compressor_ZSTD:
		if data, err = v.s.decoder.DecodeAll(data, make([]byte, 0, d.SizeBytes())); err != nil {
			return fmt.Errorf("decompress blob %s: %w: %w", d, cas.ErrCorrupt, err)
		}
	default:
		return status.Errorf(codes.InvalidArgument, "blob %s: compressor %s is not supported", d, e.GetCompressor())
	}
	return v.s.putBytes(ctx, instance, blobs, d, data)
}

// putBytes stores a blob that has come at once among those of its instance name.
func (s *Server) putBytes(ctx context.Context, instance string, blobs cas.Content, d digest.Digest, b []byte) error {
	err := s.uploads.givingWay(func() error { return blobs.PutBytes(ctx, d, b) })
	if err == nil {
		s.recent.add(instance, d, b)
	}
	return err
}

// BatchReadBlobs answers in the order of the request, with one status each.
func (v *storageService) BatchReadBlobs(
	ctx context.Context, r *repb.BatchReadBlobsRequest,
) (*repb.BatchReadBlobsResponse, error) {
	fn, err := request(r.GetInstanceName(), r.GetDigestFunction())
	if err != nil {
		return nil, v.s.readStatus(err)
	}
	var bytes int64
	if err := v.s.checkBatch(len(r.GetDigests()), func(i int) int64 {
		bytes += max(r.GetDigests()[i].GetSizeBytes(), 0)
		return r.GetDigests()[i].GetSizeBytes()
	}); err != nil {
		return nil, err
	}
	if err := v.s.options.WaitForMemory(ctx, 2*bytes+entryBytes*int64(len(r.GetDigests()))); err != nil { // the blobs, and the answer
		return nil, err
	}
	compress := slices.Contains(r.GetAcceptableCompressors(), repb.Compressor_ZSTD)
	resp := &repb.BatchReadBlobsResponse{}
	blobs := v.s.reads(r.GetInstanceName())
	for _, m := range r.GetDigests() {
		e := &repb.BatchReadBlobsResponse_Response{Digest: m}
		err := readEntry(ctx, blobs, fn, e)
		if ctx.Err() != nil {
			return nil, v.s.readStatus(ctx.Err())
		}
		if compress && len(e.Data) >= wire.CompressAbove {
			if small := v.s.encoder.EncodeAll(e.Data, nil); len(small) < len(e.Data) {
				e.Data, e.Compressor = small, repb.Compressor_ZSTD
			}
		}
		e.Status = status.Convert(v.s.readStatus(err)).Proto()
		resp.Responses = append(resp.Responses, e)
	}
	return resp, nil
}

func readEntry(ctx context.Context, blobs cas.Readable, fn digest.Function, e *repb.BatchReadBlobsResponse_Response) error {
	d, err := digest.FromProto(fn, e.Digest)
	if err != nil || d.IsEmptyBlob() {
		return err
	}
	e.Data, err = blobs.ReadBlob(ctx, d)
	return err
}
