package server

import (
	"context"
	"errors"
	"fmt"
	"io"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// lookAgainBytes is how much of an upload is received before the server checks whether another
// caller has completed the blob meanwhile.
const lookAgainBytes = 4 << 20

// Why a writeReceiver ends other than by finish_write.
var (
	errUnfinished = errors.New("stream closed without finish_write")
	errCompleted  = errors.New("blob is already there")
)

// Write stores a blob. It answers OK only if the blob is in the store. A stream that ends without
// finish_write is an error, however much it sent; the received bytes stay, and can be resumed under
// the same resource name. ByteStream says that the service answers with committed_size then, but
// clients of REv2 take an answer with the size of the blob for "stored". With finish_write the
// answer comes whether or not the client then closes its stream.
func (v *byteStreamService) Write(stream bytestream.ByteStream_WriteServer) error {
	committed, err := v.write(stream)
	if err != nil {
		return v.s.writeStatus(err)
	}
	return stream.SendAndClose(&bytestream.WriteResponse{CommittedSize: committed})
}

func (v *byteStreamService) write(stream bytestream.ByteStream_WriteServer) (int64, error) {
	first, err := stream.Recv()
	if err == io.EOF {
		return 0, status.Error(codes.InvalidArgument, "write stream without a request")
	}
	if err != nil {
		return 0, err
	}
	name, err := v.checkWrite(stream.Context(), first)
	if err != nil {
		return 0, err
	}
	blobs := v.s.content(name.Instance)
	there, err := blobs.ContainsSound(stream.Context(), name.Digest)
	if err != nil {
		return 0, err
	}
	if there {
		return completedSize(name), nil
	}
	if isWhole(first, name) {
		err := v.s.putBytes(context.WithoutCancel(stream.Context()), name.Instance, blobs, name.Digest, first.GetData())
		return int64(len(first.GetData())), err
	}
	turn, err := v.s.uploads.begin(name, first.GetWriteOffset())
	if err != nil {
		return 0, err
	}
	defer turn.release()
	in := &writeReceiver{
		stream:   stream,
		name:     first.GetResourceName(),
		next:     first.GetWriteOffset(),
		complete: func() bool { return blobs.Contains(name.Digest) },
	}
	in.accept(first)
	err = v.receive(turn, in, name)
	switch {
	case errors.Is(err, errCompleted):
		turn.abandon()
		return completedSize(name), nil
	case errors.Is(err, errUnfinished) && in.complete():
		turn.abandon()
		return completedSize(name), nil
	case errors.Is(err, errUnfinished):
		return 0, status.Errorf(codes.InvalidArgument,
			"upload %s: stream closed without finish_write: %d bytes are kept to be resumed", name, v.s.uploads.committed(name))
	case errors.Is(err, cas.ErrCorrupt):
		turn.abandon()
		return 0, err
	case err != nil:
		return 0, err
	}
	// Everything has arrived, with finish_write: a client that disconnects now has uploaded it.
	if err := turn.finish(context.WithoutCancel(stream.Context()), blobs); err != nil {
		return 0, err
	}
	// The first offset and the received bytes, compressed or not: the next write_offset.
	return in.next, nil
}

func (v *byteStreamService) checkWrite(ctx context.Context, first *bytestream.WriteRequest) (wire.Resource, error) {
	if err := checkResourceHeader(ctx, first.GetResourceName()); err != nil {
		return wire.Resource{}, err
	}
	name, err := wire.ParseWrite(first.GetResourceName())
	if err != nil {
		return wire.Resource{}, err
	}
	d, offset := name.Digest, first.GetWriteOffset()
	if offset < 0 || offset > d.SizeBytes() {
		return wire.Resource{}, status.Errorf(codes.InvalidArgument,
			"upload %s: write_offset %d is not within the blob", name, offset)
	}
	return name, v.s.checkUploadSize(d)
}

// isWhole reports whether a request has a whole small blob: it takes no place among the uploads.
func isWhole(r *bytestream.WriteRequest, name wire.Resource) bool {
	return r.GetFinishWrite() && r.GetWriteOffset() == 0 && name.Compressor == repb.Compressor_IDENTITY &&
		len(r.GetData()) <= recentBlob
}

// completedSize is REv2's committed_size when the blob is present before the client has sent it.
func completedSize(name wire.Resource) int64 {
	if name.Compressor != repb.Compressor_IDENTITY {
		return -1
	}
	return name.Digest.SizeBytes()
}

// receive writes the bytes of in to w as they arrive. A client that sends little holds no buffer. A
// client that compresses holds the buffers of its frames, if there is room for them.
func (v *byteStreamService) receive(w io.Writer, in *writeReceiver, name wire.Resource) error {
	if name.Compressor == repb.Compressor_IDENTITY {
		return in.writeTo(w)
	}
	frames := wire.NewFrames(in, name.Digest.SizeBytes(), func(bytes int64) error {
		return v.s.options.WaitForMemory(in.stream.Context(), bytes)
	})
	z, err := zstd.NewReader(frames, zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(wire.MaxZstdWindow))
	if err != nil {
		return err
	}
	defer z.Close()
	out := &errWriter{w: w}
	_, err = z.WriteTo(out)
	switch {
	case out.err != nil:
		return out.err
	case in.err != nil && in.err != io.EOF:
		// The decoder only saw that its input stopped.
		return in.err
	case frames.Refused() != nil:
		return fmt.Errorf("upload %s: %w", name, frames.Refused())
	case err != nil:
		return fmt.Errorf("upload %s: %w: %w", name, cas.ErrCorrupt, err)
	}
	return nil
}

// An errWriter remembers the error of w, to distinguish it from an error of the source.
type errWriter struct {
	w   io.Writer
	err error
}

func (e *errWriter) Write(p []byte) (int, error) {
	n, err := e.w.Write(p)
	e.err = err
	return n, err
}

// A writeReceiver reads the data of a Write stream. It ends with io.EOF after
// finish_write, with errUnfinished when the client closed the stream before, with
// errCompleted when the blob has turned up, or with a status error.
type writeReceiver struct {
	stream   bytestream.ByteStream_WriteServer
	name     string // of the first request
	next     int64  // the write_offset that is due
	complete func() bool

	pending    []byte // received, not read
	finished   bool   // finish_write was seen
	sinceCheck int64  // bytes received since complete was asked
	err        error  // once set, for good
}

// accept takes the data of a request that has been checked.
func (in *writeReceiver) accept(r *bytestream.WriteRequest) {
	in.pending, in.finished = r.GetData(), r.GetFinishWrite()
	in.next += int64(len(in.pending))
	in.sinceCheck += int64(len(in.pending))
}

// fill waits until something is pending, or returns why nothing will be.
func (in *writeReceiver) fill() error {
	for len(in.pending) == 0 && in.err == nil {
		in.err = in.receive()
	}
	if len(in.pending) == 0 {
		return in.err
	}
	return nil
}

// writeTo writes all bytes to w.
func (in *writeReceiver) writeTo(w io.Writer) error {
	for {
		if err := in.fill(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		piece := in.pending
		in.pending = nil
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
}

func (in *writeReceiver) Read(p []byte) (int, error) {
	if err := in.fill(); err != nil {
		return 0, err
	}
	n := copy(p, in.pending)
	in.pending = in.pending[n:]
	return n, nil
}

func (in *writeReceiver) receive() error {
	if in.finished {
		return io.EOF
	}
	if in.sinceCheck >= lookAgainBytes {
		if in.sinceCheck = 0; in.complete() {
			return errCompleted
		}
	}
	r, err := in.stream.Recv()
	switch {
	case err == io.EOF:
		return errUnfinished
	case err != nil:
		return err
	case r.GetResourceName() != "" && r.GetResourceName() != in.name:
		return status.Errorf(codes.InvalidArgument,
			"upload %.300q: a later request names %.300q", in.name, r.GetResourceName())
	case r.GetWriteOffset() != in.next:
		return status.Errorf(codes.InvalidArgument,
			"upload %.300q: write_offset is %d, want %d", in.name, r.GetWriteOffset(), in.next)
	}
	in.accept(r)
	return nil
}

// QueryWriteStatus returns where an upload can continue. For an unknown upload it returns 0
// committed bytes. ByteStream asks for NOT_FOUND there, but then Bazel (ByteStreamUploader) fails
// the build if a connection broke before the first request arrived or the server restarted; 0 makes
// every client begin again.
func (v *byteStreamService) QueryWriteStatus(
	ctx context.Context, r *bytestream.QueryWriteStatusRequest,
) (*bytestream.QueryWriteStatusResponse, error) {
	if err := checkResourceHeader(ctx, r.GetResourceName()); err != nil {
		return nil, v.s.writeStatus(err)
	}
	name, err := wire.ParseWrite(r.GetResourceName())
	if err != nil {
		return nil, v.s.writeStatus(err)
	}
	there, err := v.s.content(name.Instance).ContainsSound(ctx, name.Digest)
	if err != nil {
		return nil, v.s.writeStatus(err)
	}
	if there {
		return &bytestream.QueryWriteStatusResponse{CommittedSize: name.Digest.SizeBytes(), Complete: true}, nil
	}
	return &bytestream.QueryWriteStatusResponse{CommittedSize: v.s.uploads.committed(name)}, nil
}
