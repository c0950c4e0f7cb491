package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
)

// Fetch implements Fetcher: small blobs travel in batches, large ones in streams
// that go on where they broke. What sink reads is verified at the latest by the
// last read, which fails with ErrCorrupt. Sink may hold one of the Client's calls
// while it runs, so it must not call the Client.
//
// Fetch requests a blob again, up to maxWrong attempts, if its bytes were wrong: then it may call
// sink again for a blob of which sink has read wrong bytes. An error of sink, or a blob that is
// ErrCorrupt each time, does not keep other blobs from being delivered; a server that cannot be
// reached does.
func (c *Client) Fetch(
	ctx context.Context, ds []digest.Digest, sink func(d digest.Digest, r io.Reader) error,
) error {
	ds, err := c.unique(ds)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	if len(ds) == 0 {
		return nil
	}
	known, err := c.limits(ctx)
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	f := &fetch{c: c, known: known, sink: sink}
	if err := f.all(ctx, ds); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	return f.result()
}

// Read returns the bytes of a blob. The caller must not change them, because other callers may
// share them. Small blobs that are read at the same time are fetched in one call.
func (c *Client) Read(ctx context.Context, d digest.Digest) (b []byte, err error) {
	if d.SizeBytes() <= gatherBelow && d.Function() == c.fn {
		return c.readGathered(ctx, d)
	}
	err = c.Fetch(ctx, []digest.Digest{d}, func(_ digest.Digest, r io.Reader) (err error) {
		b, err = readBlob(d, r)
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// pack divides blobs into batches, each within the server's limit, and those that
// go in streams.
func pack(ds []digest.Digest, limit int64) (batches [][]digest.Digest, large []digest.Digest) {
	var batch []digest.Digest
	var left int64
	for _, d := range ds {
		if d.SizeBytes() > min(limit, cas.StreamAbove) {
			large = append(large, d)
			continue
		}
		// A single blob may use up the limit, overhead or not.
		need := d.SizeBytes() + cas.EntryOverhead
		if len(batch) > 0 && (need > left || len(batch) >= cas.MaxBatchBlobs) {
			batches = append(batches, batch)
			batch = nil
		}
		if len(batch) == 0 {
			left = limit
		}
		batch = append(batch, d)
		left -= need
	}
	if len(batch) > 0 {
		batches = append(batches, batch)
	}
	return batches, large
}

// A fetch is one call of Fetch.
type fetch struct {
	c     *Client
	known limits
	sink  func(d digest.Digest, r io.Reader) error

	mu      sync.Mutex
	missing []digest.Digest         // guarded by mu
	failed  map[digest.Digest]error // guarded by mu
}

func (f *fetch) isMissing(d digest.Digest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missing = append(f.missing, d)
}

// all delivers blobs. An error is one of the connection.
func (f *fetch) all(ctx context.Context, ds []digest.Digest) error {
	batches, large := pack(ds, f.known.batchBytes)
	if len(batches) == 1 && len(large) == 0 {
		return f.batch(ctx, batches[0]) // needs no goroutine
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(f.c.link.options.MaxConcurrent)
	for _, batch := range batches {
		g.Go(func() error { return f.batch(gctx, batch) })
	}
	for _, d := range large {
		g.Go(func() error { return f.stream(gctx, d) })
	}
	return g.Wait()
}

// fail notes an error about one blob; nil is none.
func (f *fetch) fail(d digest.Digest, err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = make(map[digest.Digest]error)
	}
	f.failed[d] = err
}

func (f *fetch) result() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case len(f.failed) > 0:
		return &cas.FetchError{Blobs: f.failed}
	case len(f.missing) > 0:
		return &cas.MissingError{Digests: f.missing}
	}
	return nil
}

// batch delivers small blobs. An error is one of the connection.
func (f *fetch) batch(ctx context.Context, ds []digest.Digest) error {
	pending := map[digest.Digest]struct{}{}
	for _, d := range ds {
		if d.IsEmptyBlob() {
			f.fail(d, f.sink(d, bytes.NewReader(nil)))
			continue
		}
		pending[d] = struct{}{}
	}
	b, wrong := f.c.link.newBudget(), f.c.link.newWrong()
	for len(pending) > 0 {
		ds = slices.DeleteFunc(ds, func(d digest.Digest) bool { _, left := pending[d]; return !left })
		answer, err := f.readBatch(ctx, ds)
		if batchRefused(err) {
			return f.streamAll(ctx, pending)
		}
		if err == nil {
			before := len(pending)
			err = f.deliver(ctx, answer, pending, wrong)
			if err == nil && wrong.due() {
				continue
			}
			if err == nil {
				// The server left these out of its answer; a stream may still deliver them.
				return f.streamAll(ctx, pending)
			}
			if len(pending) < before {
				b.progress()
			}
		}
		if err := b.pause(ctx, err); err != nil {
			return err
		}
	}
	return nil
}

func (f *fetch) readBatch(
	ctx context.Context, ds []digest.Digest,
) (answer *repb.BatchReadBlobsResponse, err error) {
	r := &repb.BatchReadBlobsRequest{InstanceName: f.c.instance, DigestFunction: f.c.fn.Proto()}
	if f.known.zstdStreams {
		r.AcceptableCompressors = []repb.Compressor_Value{repb.Compressor_IDENTITY, repb.Compressor_ZSTD}
	}
	for _, d := range ds {
		r.Digests = append(r.Digests, d.Proto())
	}
	release, err := f.c.turn(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	err = f.c.link.once(ctx, func(ctx context.Context) (err error) {
		answer, err = f.c.link.storage.BatchReadBlobs(ctx, r, callOptions()...)
		return err
	})
	return answer, err
}

// deliver passes the blobs of an answer to the sink and removes them from pending. The error is the
// context's, or that of a blob that may succeed in another request. It ignores entries of digests
// that were not requested.
func (f *fetch) deliver(
	ctx context.Context, answer *repb.BatchReadBlobsResponse, pending map[digest.Digest]struct{}, wrong *wrongBlobs,
) error {
	var again error
	for _, e := range answer.GetResponses() {
		if err := ctx.Err(); err != nil {
			return err
		}
		d, err := digest.FromProto(f.c.fn, e.GetDigest())
		if _, asked := pending[d]; err != nil || !asked {
			continue
		}
		data, err := f.c.link.entry(d, e)
		switch _, ok := retriable(err); {
		case err == nil:
			f.fail(d, f.sink(d, bytes.NewReader(data)))
		case status.Code(err) == codes.NotFound:
			f.isMissing(d)
		case ok:
			again = fmt.Errorf("blob %s: %w", d, err)
			continue
		case wrong.again(d, err):
			continue
		default:
			f.fail(d, err)
		}
		delete(pending, d)
	}
	return again
}

// entry returns the bytes of a blob that an answer has.
func (l *link) entry(d digest.Digest, e *repb.BatchReadBlobsResponse_Response) ([]byte, error) {
	if err := status.ErrorProto(e.GetStatus()); err != nil {
		return nil, blobError(err)
	}
	return l.open(d, e.GetData(), e.GetCompressor())
}

// open decompresses and verifies the data of a batch entry.
func (l *link) open(d digest.Digest, data []byte, z repb.Compressor_Value) ([]byte, error) {
	switch z {
	case repb.Compressor_IDENTITY:
	case repb.Compressor_ZSTD:
		var err error
		if data, err = l.decoder.DecodeAll(data, make([]byte, 0, d.SizeBytes())); err != nil {
			return nil, fmt.Errorf("%w: %w", cas.ErrCorrupt, err)
		}
	default:
		return nil, fmt.Errorf("%w: compressor %s was not asked for", cas.ErrCorrupt, z)
	}
	if got := digest.Of(d.Function(), data); got != d {
		return nil, fmt.Errorf("%w: the server sent %s", cas.ErrCorrupt, got)
	}
	return data, nil
}

func (f *fetch) streamAll(ctx context.Context, ds map[digest.Digest]struct{}) error {
	if len(ds) == 0 {
		return nil // as nearly always
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(f.c.link.options.MaxConcurrent)
	for d := range ds {
		g.Go(func() error { return f.stream(gctx, d) })
	}
	return g.Wait()
}

// stream delivers one blob in a stream. An error is one of the connection.
func (f *fetch) stream(ctx context.Context, d digest.Digest) error {
	wrong := f.c.link.newWrong()
	for {
		err := f.streamOnce(ctx, d)
		switch {
		case err == nil:
		case status.Code(err) == codes.NotFound:
			f.isMissing(d)
		case isConnectionError(ctx, err):
			return fmt.Errorf("blob %s: %w", d, err)
		case wrong.again(d, err):
			continue
		default:
			f.fail(d, err)
		}
		return nil
	}
}

// streamOnce delivers one blob in a stream, and returns why there was none, or not the right one.
func (f *fetch) streamOnce(ctx context.Context, d digest.Digest) error {
	release, err := f.c.downloadSlot(ctx)
	if err != nil {
		return err
	}
	defer release()
	r := newBlobReader(ctx, f.c, f.known, d, span.Span{To: d.SizeBytes()})
	r.hasher = digest.NewHasher(d.Function())
	defer r.close()
	// Call sink only for blobs that exist.
	if r.begin(); r.err == nil || r.err == io.EOF {
		if err := f.sink(d, r); r.err == nil || r.err == io.EOF {
			f.fail(d, err)
			return nil
		}
	}
	return r.err
}

// isConnectionError reports whether err is not about one blob: the time for
// trying again has run out, or the caller's.
func isConnectionError(ctx context.Context, err error) bool {
	_, again := retriable(err)
	return again || ctx.Err() != nil
}

// blobError gives the server's complaint that it has a damaged blob its kind; nil stays nil.
func blobError(err error) error {
	if status.Code(err) == codes.DataLoss {
		return fmt.Errorf("%w: %w", cas.ErrCorrupt, err)
	}
	return err
}
