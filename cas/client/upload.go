package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/wire"
	"github.com/forerunner-build/forerunner/proto/names"
)

// A Blob is a source to upload. Open returns its bytes from the start. It may be called several
// times, because a broken upload reads the blob again, from the middle if the result is an
// io.Seeker.
type Blob struct {
	Digest digest.Digest
	Open   func() (io.ReadCloser, error)
}

// BytesBlob is a blob in memory. The caller must not change b until it is uploaded.
func BytesBlob(d digest.Digest, b []byte) Blob {
	return Blob{Digest: d, Open: func() (io.ReadCloser, error) {
		return bytesReader{bytes.NewReader(b)}, nil
	}}
}

type bytesReader struct{ *bytes.Reader }

func (bytesReader) Close() error { return nil }

// FileBlob is a blob in a file, which is opened when its turn comes.
func FileBlob(d digest.Digest, path string) Blob {
	return Blob{Digest: d, Open: func() (io.ReadCloser, error) { return os.Open(path) }}
}

// Upload sends those blobs to the server that it does not have. Small ones go in batches, large
// ones in streams that resume. A blob whose bytes do not match its digest is ErrCorrupt. The first
// error ends the upload; received blobs stay.
//
// Progress may be nil. It gets how many more bytes of a blob are done, because they were sent or
// are present already: over a successful Upload the numbers for a blob add up to its size. Its
// calls do not overlap; it must not block.
func (c *Client) Upload(
	ctx context.Context, blobs []Blob, progress func(d digest.Digest, bytes int64),
) error {
	ds := make([]digest.Digest, len(blobs))
	byDigest := make(map[digest.Digest]Blob, len(blobs))
	for i, b := range blobs {
		ds[i] = b.Digest
		byDigest[b.Digest] = b
	}
	if len(ds) == 0 {
		return nil
	}
	known, err := c.limits(ctx)
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	missing, err := c.FindMissing(ctx, ds)
	if err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	u := &uploading{c: c, known: known, blobs: byDigest, progress: progress}
	u.reportPresent(missing)
	if err := u.checkSizes(missing); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	batches, large := pack(missing, known.batchBytes)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(c.link.options.MaxConcurrent)
	for _, batch := range batches {
		g.Go(func() error { return u.batch(gctx, batch) })
	}
	for _, d := range large {
		g.Go(func() error { return u.stream(gctx, d) })
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("upload: %w", err)
	}
	return nil
}

// Vouched returns a context for an Upload of blobs that a result is about to name: a storage that
// supports it then verifies the blobs that it reports as present, and requests damaged ones.
func Vouched(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, names.VouchedHeader, "yes")
}

// uploading is one call of Upload.
type uploading struct {
	c     *Client
	known limits
	blobs map[digest.Digest]Blob // read only

	mu       sync.Mutex // held while progress is called, so that calls do not overlap
	progress func(d digest.Digest, bytes int64)
}

func (u *uploading) report(d digest.Digest, n int64) {
	if u.progress == nil || n <= 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.progress(d, n)
}

func (u *uploading) reportPresent(missing []digest.Digest) {
	absent := make(map[digest.Digest]struct{}, len(missing))
	for _, d := range missing {
		absent[d] = struct{}{}
	}
	for d := range u.blobs {
		if _, ok := absent[d]; !ok {
			u.report(d, d.SizeBytes())
		}
	}
}

func (u *uploading) checkSizes(ds []digest.Digest) error {
	limit := u.known.maxBlobBytes
	for _, d := range ds {
		if limit > 0 && d.SizeBytes() > limit {
			return fmt.Errorf("blob %s: the server accepts no blobs larger than %d bytes", d, limit)
		}
	}
	return nil
}

// batch uploads small blobs.
func (u *uploading) batch(ctx context.Context, ds []digest.Digest) error {
	pending := make(map[digest.Digest]*repb.BatchUpdateBlobsRequest_Request, len(ds))
	for _, d := range ds {
		e, err := u.entry(d)
		if err != nil {
			return err
		}
		pending[d] = e
	}
	b := u.c.link.newBudget()
	for len(pending) > 0 {
		answer, err := u.updateBatch(ctx, pending)
		if batchRefused(err) {
			return u.streamAll(ctx, pending)
		}
		if err == nil {
			before := len(pending)
			again, err := u.settle(answer, pending)
			if err != nil {
				return err
			}
			if again == nil {
				// The server may accept blobs that it did not answer for in another way.
				return u.streamAll(ctx, pending)
			}
			if len(pending) < before {
				b.progress()
			}
			if err := b.pause(ctx, again); err != nil {
				return err
			}
			continue
		}
		if err := b.pause(ctx, err); err != nil {
			return err
		}
	}
	return nil
}

// entry reads a blob into a batch entry.
func (u *uploading) entry(d digest.Digest) (*repb.BatchUpdateBlobsRequest_Request, error) {
	src, err := u.blobs[d].Open()
	if err != nil {
		return nil, fmt.Errorf("open blob %s: %w", d, err)
	}
	defer src.Close()
	data := make([]byte, d.SizeBytes()+1)
	n, err := io.ReadFull(src, data)
	if err == nil || int64(n) != d.SizeBytes() {
		if err == nil || err == io.EOF || err == io.ErrUnexpectedEOF {
			err = fmt.Errorf("%w: its source has another size", cas.ErrCorrupt)
		}
		return nil, fmt.Errorf("read blob %s: %w", d, err)
	}
	e := &repb.BatchUpdateBlobsRequest_Request{Digest: d.Proto(), Data: data[:n]}
	if u.known.zstdUpdates && n >= wire.CompressAbove {
		if small := u.c.link.encoder.EncodeAll(e.Data, nil); len(small) < n {
			e.Data, e.Compressor = small, repb.Compressor_ZSTD
		}
	}
	return e, nil
}

func (u *uploading) updateBatch(
	ctx context.Context, pending map[digest.Digest]*repb.BatchUpdateBlobsRequest_Request,
) (answer *repb.BatchUpdateBlobsResponse, err error) {
	r := &repb.BatchUpdateBlobsRequest{InstanceName: u.c.instance, DigestFunction: u.c.fn.Proto()}
	for _, e := range pending {
		r.Requests = append(r.Requests, e)
	}
	err = u.c.link.once(ctx, func(ctx context.Context) (err error) {
		answer, err = u.c.link.storage.BatchUpdateBlobs(ctx, r, callOptions()...)
		return err
	})
	return answer, err
}

// settle removes stored blobs from pending. The first error is from a blob that may be sent again;
// the second one is final.
func (u *uploading) settle(
	answer *repb.BatchUpdateBlobsResponse, pending map[digest.Digest]*repb.BatchUpdateBlobsRequest_Request,
) (again, err error) {
	for _, e := range answer.GetResponses() {
		d, err := digest.FromProto(u.c.fn, e.GetDigest())
		if _, asked := pending[d]; err != nil || !asked {
			continue // it is about no blob that was sent
		}
		st := status.FromProto(e.GetStatus())
		if st.Code() == codes.OK || st.Code() == codes.AlreadyExists {
			delete(pending, d)
			u.report(d, d.SizeBytes())
		} else if _, ok := retriable(st.Err()); ok {
			again = fmt.Errorf("blob %s: %w", d, st.Err())
		} else {
			return nil, fmt.Errorf("blob %s: %w", d, u.refused(d, st.Err()))
		}
	}
	return again, nil
}

// refused gives INVALID_ARGUMENT the kind ErrCorrupt if the bytes of the source do not match its
// digest.
func (u *uploading) refused(d digest.Digest, err error) error {
	if status.Code(err) != codes.InvalidArgument {
		return err
	}
	src, openErr := u.blobs[d].Open()
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	defer src.Close()
	if got, readErr := digest.OfReader(d.Function(), src); readErr == nil && got != d {
		return fmt.Errorf("%w: its source is %s: %w", cas.ErrCorrupt, got, err)
	}
	return err
}

func (u *uploading) streamAll(
	ctx context.Context, pending map[digest.Digest]*repb.BatchUpdateBlobsRequest_Request,
) error {
	for d := range pending {
		if err := u.stream(ctx, d); err != nil {
			return err
		}
	}
	return nil
}
