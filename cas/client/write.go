package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// errClosedEarly ends the sending when the server has closed the stream; why is
// in its answer.
var errClosedEarly = errors.New("the server has closed the stream")

// stream uploads one blob with ByteStream.Write, with as many streams as it takes.
func (u *uploading) stream(ctx context.Context, d digest.Digest) error {
	w := &blobWriter{
		l:    u.c.link,
		blob: u.blobs[d],
		name: wire.Resource{Instance: u.c.instance, UUID: wire.NewUUID(), Digest: d},
		sent: func(n int64) { u.report(d, n) },
	}
	if u.known.zstdStreams && d.SizeBytes() >= wire.CompressAbove {
		w.name.Compressor = repb.Compressor_ZSTD
	}
	release, err := u.c.link.slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := w.run(ctx); err != nil {
		return fmt.Errorf("blob %s: %w", d, u.refused(d, err))
	}
	u.report(d, d.SizeBytes()-w.reported)
	return nil
}

// A blobWriter uploads one blob.
type blobWriter struct {
	l    *link
	blob Blob
	name wire.Resource
	sent func(n int64)

	offset   int64 // where the next stream begins, in bytes of the blob
	reported int64 // bytes of the blob that sent has got
	anew     bool  // the upload was begun a second time, under another name
}

// run makes attempts until the blob is at the server.
func (w *blobWriter) run(ctx context.Context) error {
	b := w.l.newBudget()
	for {
		err := w.attempt(ctx)
		if err == nil {
			return nil
		}
		if w.startAnew(err) {
			continue
		}
		if err := b.pause(ctx, err); err != nil {
			return err
		}
		committed, complete, err := w.query(ctx)
		if complete {
			return nil
		}
		if err != nil {
			if err := b.pause(ctx, err); err != nil {
				return err
			}
			continue // from the same offset, which the server checks
		}
		if committed > w.offset {
			b.progress()
		}
		w.offset = committed
	}
}

// startAnew handles servers that announce zstd but do not accept it, or that refuse to resume bytes
// that they reported as committed: the upload begins once more, uncompressed, under another name.
func (w *blobWriter) startAnew(err error) bool {
	plain := w.name.Compressor == repb.Compressor_IDENTITY && w.offset == 0
	if w.anew || plain || !compressionRefused(err) || errors.Is(err, cas.ErrCorrupt) {
		return false
	}
	w.anew, w.offset = true, 0
	w.name.UUID, w.name.Compressor = wire.NewUUID(), repb.Compressor_IDENTITY
	return true
}

// query asks where the upload can go on. A server that does not know has nothing.
func (w *blobWriter) query(ctx context.Context) (committed int64, complete bool, err error) {
	watch := newWatch(ctx, w.l.options.StallAfter)
	defer watch.stop()
	var answer *bytestream.QueryWriteStatusResponse
	err = watch.step(func() (err error) {
		r := &bytestream.QueryWriteStatusRequest{ResourceName: w.name.String()}
		answer, err = w.l.streams.QueryWriteStatus(watch.ctx, r, callOptions()...)
		return err
	})
	switch status.Code(err) {
	case codes.OK:
	case codes.NotFound, codes.Unimplemented:
		return 0, false, nil
	default:
		return 0, false, err
	}
	committed = answer.GetCommittedSize()
	if committed < 0 || committed > w.name.Digest.SizeBytes() {
		committed = 0
	}
	return committed, answer.GetComplete(), nil
}

// attempt sends the blob from w.offset in one stream.
func (w *blobWriter) attempt(ctx context.Context) error {
	src, err := w.open()
	if err != nil {
		return err
	}
	defer src.Close()
	watch := newWatch(ctx, w.l.options.StallAfter)
	defer watch.stop()
	out := &writeSender{watch: watch, name: w.name.String(), next: w.offset}
	if err := watch.step(func() (err error) {
		out.stream, err = w.l.streams.Write(watch.ctx, callOptions()...)
		return err
	}); err != nil {
		return err
	}
	sendErr := w.send(out, src)
	if sendErr != nil && sendErr != errClosedEarly {
		return sendErr
	}
	var answer *bytestream.WriteResponse
	if err := watch.step(func() (err error) {
		answer, err = out.stream.CloseAndRecv()
		return err
	}); err != nil {
		if status.Code(err) == codes.AlreadyExists {
			return nil
		}
		return err
	}
	return w.checkCommitted(answer.GetCommittedSize(), sendErr == nil, out.next)
}

// open returns the bytes of the blob from w.offset on.
func (w *blobWriter) open() (io.ReadCloser, error) {
	src, err := w.blob.Open()
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	if w.offset == 0 {
		return src, nil
	}
	if s, ok := src.(io.Seeker); ok {
		_, err = s.Seek(w.offset, io.SeekStart)
	} else {
		_, err = io.CopyN(io.Discard, src, w.offset)
	}
	if err != nil {
		_ = src.Close()
		return nil, fmt.Errorf("skip %d bytes of source: %w", w.offset, err)
	}
	return src, nil
}

// send sends all of src, and finish_write.
func (w *blobWriter) send(out *writeSender, src io.Reader) error {
	at := w.offset
	counted := &sourceReader{r: src, read: func(n int) {
		if at += int64(n); at > w.reported {
			w.sent(at - w.reported)
			w.reported = at
		}
	}}
	// One byte more shows a source that is too long.
	limited := io.LimitReader(counted, w.name.Digest.SizeBytes()-at+1)
	err := w.encode(out, limited)
	switch {
	case counted.err != nil:
		return fmt.Errorf("read source: %w", counted.err)
	case err != nil:
		return err
	case at != w.name.Digest.SizeBytes():
		return fmt.Errorf("%w: its source has another size", cas.ErrCorrupt)
	}
	return out.flush(true)
}

func (w *blobWriter) encode(out *writeSender, src io.Reader) error {
	if w.name.Compressor == repb.Compressor_IDENTITY {
		_, err := wire.CopyChunks(out, src, w.name.Digest.SizeBytes())
		return err
	}
	z, err := wire.NewStreamEncoder(out, w.name.Digest.SizeBytes())
	if err != nil {
		return err
	}
	if _, err := wire.CopyChunks(z, src, w.name.Digest.SizeBytes()); err != nil {
		_ = z.Close() // nothing more can be sent
		return err
	}
	return z.Close()
}

// checkCommitted interprets committed_size (REv2, "ContentAddressableStorage"): the size of the
// blob or, compressed, -1 mean that it is stored, however much was sent; after everything was sent,
// so does the next write_offset.
func (w *blobWriter) checkCommitted(committed int64, all bool, next int64) error {
	compressed := w.name.Compressor != repb.Compressor_IDENTITY
	switch {
	case committed == w.name.Digest.SizeBytes(), compressed && committed == -1, compressed && all && committed == next:
		return nil
	}
	return status.Errorf(codes.Aborted, "the server has committed %d bytes of the upload", committed)
}

// A sourceReader counts the bytes, and distinguishes an error of the source from errors of the
// stream.
type sourceReader struct {
	r    io.Reader
	read func(n int)
	err  error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.read(n)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// A writeSender sends written bytes in messages of streamChunk bytes. It holds the last one back,
// so that finish_write can go with it.
type writeSender struct {
	watch  *watch
	stream bytestream.ByteStream_WriteClient
	name   string // sent with the first message only
	next   int64  // the write_offset of the next message
	buf    []byte
}

func (s *writeSender) Write(p []byte) (int, error) {
	var n int
	for n < len(p) {
		if len(s.buf) == wire.StreamChunk {
			if err := s.flush(false); err != nil {
				return n, err
			}
		}
		k := min(len(p)-n, wire.StreamChunk-len(s.buf))
		s.buf = append(s.buf, p[n:n+k]...)
		n += k
	}
	return n, nil
}

// flush sends the held bytes.
func (s *writeSender) flush(finish bool) error {
	r := &bytestream.WriteRequest{ResourceName: s.name, WriteOffset: s.next, Data: s.buf, FinishWrite: finish}
	err := s.watch.step(func() error { return s.stream.Send(r) })
	if err == io.EOF {
		return errClosedEarly
	}
	if err != nil {
		return err
	}
	s.name = ""
	s.next += int64(len(s.buf))
	s.buf = s.buf[:0]
	return nil
}
