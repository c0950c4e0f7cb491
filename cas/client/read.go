package client

import (
	"context"
	"fmt"
	"io"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// A blobReader reads one blob with as many ByteStream.Read streams as necessary, each resuming the
// one before. It ends with io.EOF only if the bytes match the blob; else with ErrCorrupt or the
// error of the last attempt. One that does not read the whole blob checks only the length.
type blobReader struct {
	ctx    context.Context // of the Fetch that the reader lives in
	c      *Client
	name   wire.Resource
	at     int64          // offset of the next byte
	to     int64          // its end
	hasher *digest.Hasher // of all before at; nil when it is not verified
	budget *budget
	// unlimited: the server refused to send a part alone, so the rest is requested, too, and the
	// surplus dropped.
	unlimited bool
	refused   bool // it did so just now; whether that was about the limit is known when something comes without
	// fromStart: the server refused to begin inside the blob, so all is requested, and what is not
	// wanted dropped.
	fromStart bool
	drop      int64 // bytes of attempt before at

	attempt *readAttempt // nil between two streams
	ahead   []byte       // read by begin, not yet delivered
	err     error        // once set, for good
}

var _ cas.Pauser = (*blobReader)(nil)

// newBlobReader returns a reader of a part of d, without a hasher.
func newBlobReader(ctx context.Context, c *Client, known limits, d digest.Digest, part span.Span) *blobReader {
	r := &blobReader{
		ctx:    ctx,
		c:      c,
		name:   wire.Resource{Instance: c.instance, Digest: d},
		at:     part.From,
		to:     part.To,
		budget: c.link.newBudget(),
	}
	r.unlimited = c.link.refusal.remembered()
	// Compressed blobs can be read to their end only.
	if known.zstdStreams && r.to == d.SizeBytes() && r.to-r.at >= wire.CompressAbove {
		r.name.Compressor = repb.Compressor_ZSTD
	}
	return r
}

// begin reads a first piece, so that r.err shows whether the blob exists.
func (r *blobReader) begin() {
	buf := make([]byte, 32<<10)
	n, _ := r.Read(buf)
	r.ahead = buf[:n]
}

func (r *blobReader) Read(p []byte) (int, error) {
	if len(r.ahead) > 0 {
		n := copy(p, r.ahead)
		r.ahead = r.ahead[n:]
		return n, nil
	}
	for r.err == nil && len(p) > 0 {
		n, err := r.next(p)
		if n > 0 {
			return r.deliver(p[:n])
		}
		if err != nil {
			r.ended(err)
		}
	}
	return 0, r.err
}

// deliver accounts for bytes that have arrived.
func (r *blobReader) deliver(p []byte) (int, error) {
	d := r.name.Digest
	if int64(len(p)) > d.SizeBytes()-r.at {
		r.err = fmt.Errorf("blob %s: %w: the server sent more than its size", d, cas.ErrCorrupt)
		return 0, r.err
	}
	r.at += int64(len(p))
	if r.hasher != nil {
		_, _ = r.hasher.Write(p)
	}
	r.budget.progress()
	if r.refused {
		r.refused = false
		r.c.link.refusal.note()
	}
	return len(p), nil
}

// next reads from the stream, and opens one if there is none. When it has all bytes, it does not
// wait for the stream to end.
func (r *blobReader) next(p []byte) (int, error) {
	size := r.name.Digest.SizeBytes()
	if r.at == r.to && (r.at > 0 || r.to < size || r.name.Digest.IsEmptyBlob()) {
		return 0, io.EOF
	}
	var limit int64
	if r.to < size {
		limit = r.to - r.at
		p = p[:min(int64(len(p)), limit)] // even if the server ignores the limit
	}
	offset := r.at
	if r.fromStart {
		offset = 0
	}
	if r.unlimited || r.fromStart {
		limit = 0
	}
	if r.attempt == nil {
		a, err := r.c.link.openRead(r.ctx, r.name, offset, limit)
		if err != nil {
			return 0, err
		}
		r.attempt, r.drop = a, r.at-offset
	}
	for r.drop > 0 {
		n, err := r.attempt.Read(p[:min(int64(len(p)), r.drop)])
		if r.drop -= int64(n); n > 0 {
			r.budget.progress()
		} else if err != nil {
			return 0, err
		}
	}
	return r.attempt.Read(p)
}

// ended decides what to do when a stream has ended with err: the end, an error, or after a pause
// another stream.
func (r *blobReader) ended(err error) {
	r.close()
	d := r.name.Digest
	switch {
	case err == io.EOF && r.at < r.to:
		r.err = fmt.Errorf("blob %s: %w: the server sent only %d bytes", d, cas.ErrCorrupt, r.at)
	case err == io.EOF && r.hasher != nil && r.hasher.Digest() != d:
		r.err = fmt.Errorf("blob %s: %w: the server sent %s", d, cas.ErrCorrupt, r.hasher.Digest())
	case err == io.EOF:
		r.err = io.EOF
	case r.name.Compressor != repb.Compressor_IDENTITY && compressionRefused(err):
		r.name.Compressor = repb.Compressor_IDENTITY
	case r.to < d.SizeBytes() && !r.unlimited && limitRefused(err):
		r.unlimited, r.refused = true, true
	case r.at > 0 && !r.fromStart && offsetRefused(err):
		r.fromStart, r.refused = true, false
	default:
		r.err = blobError(r.budget.pause(r.ctx, err))
	}
}

// Pause implements cas.Pauser. The time until the next Read does not count as one without progress.
func (r *blobReader) Pause() {
	r.close()
	r.budget.progress()
}

// compressionRefused reports whether a server that announced zstd refuses it for this blob.
func compressionRefused(err error) bool {
	code := status.Code(err)
	return code == codes.Unimplemented || code == codes.InvalidArgument
}

// limitRefused reports whether a server may have refused to send a part of a blob alone.
func limitRefused(err error) bool {
	code := status.Code(err)
	return code == codes.Unimplemented || code == codes.InvalidArgument
}

// offsetRefused reports whether a server may have refused to begin inside a blob.
func offsetRefused(err error) bool {
	return limitRefused(err) || status.Code(err) == codes.OutOfRange
}

func (r *blobReader) close() {
	if r.attempt != nil {
		r.attempt.close()
		r.attempt = nil
	}
}

// A readAttempt is one ByteStream.Read stream.
type readAttempt struct {
	in *streamReader
	z  *zstd.Decoder // nil when the data is not compressed
}

// openRead reads from offset on as many bytes as limit; 0: to the end.
func (l *link) openRead(ctx context.Context, name wire.Resource, offset, limit int64) (*readAttempt, error) {
	in := &streamReader{watch: newWatch(ctx, l.options.StallAfter)}
	err := in.watch.step(func() (err error) {
		r := &bytestream.ReadRequest{ResourceName: name.String(), ReadOffset: offset, ReadLimit: limit}
		in.stream, err = l.streams.Read(in.watch.ctx, r, callOptions()...)
		return err
	})
	a := &readAttempt{in: in}
	if err == nil && name.Compressor == repb.Compressor_ZSTD {
		most := maxCompressed(name.Digest.SizeBytes() - offset)
		a.z, err = zstd.NewReader(io.LimitReader(in, most), zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(wire.MaxZstdWindow))
	}
	if err != nil {
		a.close()
		return nil, err
	}
	return a, nil
}

// maxCompressed returns how long a zstd stream of that many bytes may be: much longer than any is
// that does not compress. One that goes on has frames that are skipped, and would never end.
func maxCompressed(bytes int64) int64 { return bytes + bytes/2 + 1<<20 }

func (a *readAttempt) Read(p []byte) (int, error) {
	if a.z == nil {
		return a.in.Read(p)
	}
	n, err := a.z.Read(p)
	switch {
	case n > 0 || err == nil || err == io.EOF:
		return n, err
	case a.in.err != nil && a.in.err != io.EOF:
		// The decoder only saw that its input stopped.
		return 0, a.in.err
	}
	return 0, fmt.Errorf("%w: %w", cas.ErrCorrupt, err)
}

func (a *readAttempt) close() {
	if a.z != nil {
		a.z.Close()
	}
	a.in.watch.stop()
}

// A streamReader reads the data of a Read stream.
type streamReader struct {
	watch   *watch
	stream  bytestream.ByteStream_ReadClient
	pending []byte
	data    []byte // of which pending is the end
	err     error  // once set, for good
}

func (s *streamReader) Read(p []byte) (int, error) {
	if len(s.pending) == 0 && s.err == nil {
		wire.Recycle(s.data)
		s.data = nil
		s.err = s.watch.step(s.receive)
	}
	if len(s.pending) == 0 {
		return 0, s.err
	}
	n := copy(p, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

// receive receives the next data. Messages without any do not prolong the time for it.
func (s *streamReader) receive() error {
	for len(s.data) == 0 {
		r, err := s.stream.Recv()
		if err != nil {
			return err
		}
		s.data = r.GetData()
	}
	s.pending = s.data
	return nil
}
