package cas

import (
	"bufio"
	"context"
	"fmt"
	"io"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// streamChunk is how much data one message of a stream carries.
const streamChunk = 256 << 10

// Read sends a blob, or a part of it. The offset counts bytes of the blob also
// when what is sent is compressed.
func (v *byteStreamService) Read(r *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	return v.s.readStatus(v.read(r, stream))
}

func (v *byteStreamService) read(r *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	if err := checkResourceHeader(stream.Context(), r.GetResourceName()); err != nil {
		return err
	}
	res, err := parseRead(r.GetResourceName())
	if err != nil {
		return err
	}
	d, offset, limit := res.digest, r.GetReadOffset(), r.GetReadLimit()
	switch {
	case limit < 0:
		return status.Errorf(codes.InvalidArgument, "read %s: read_limit %d is negative", d, limit)
	case limit > 0 && res.compressor != repb.Compressor_IDENTITY:
		return status.Errorf(codes.InvalidArgument, "read %s: compressed blobs take no read_limit", d)
	case offset < 0 || offset > d.SizeBytes():
		return status.Errorf(codes.OutOfRange, "read %s: read_offset %d is not within the blob", d, offset)
	}
	f, err := v.s.blobs.OpenBlob(stream.Context(), d)
	if err != nil {
		return err
	}
	defer f.Close()
	length := d.SizeBytes() - offset
	if limit > 0 {
		length = min(length, limit)
	}
	part := io.NewSectionReader(f, offset, length)
	send := sendPlain
	if res.compressor == repb.Compressor_ZSTD {
		send = sendCompressed
	}
	n, err := send(stream, part, length)
	if err == nil && n < length {
		err = fmt.Errorf("file ends %d bytes early: %w", length-n, ErrCorrupt)
	}
	if err != nil {
		return fmt.Errorf("read blob %s: %w", d, err)
	}
	return nil
}

// checkResourceHeader enforces that the header, if there, repeats the resource
// name of the request.
func checkResourceHeader(ctx context.Context, name string) error {
	for _, h := range metadata.ValueFromIncomingContext(ctx, resourceHeader) {
		if h != name {
			return fmt.Errorf("%w: header %s is %.300q but the request's resource name is %.300q",
				errInvalidName, resourceHeader, h, name)
		}
	}
	return nil
}

// A readSender sends what is written to it, one message a Write.
type readSender struct {
	stream bytestream.ByteStream_ReadServer
}

func (w readSender) Write(p []byte) (int, error) {
	// Send has serialized p when it returns, so the caller may reuse it.
	if err := w.stream.Send(&bytestream.ReadResponse{Data: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// copyChunks copies in full chunks, or smaller ones if r is to have no more than size
// bytes, and returns how much it has read. io.CopyBuffer would not do: it lets a
// reader or writer with shortcuts choose the sizes.
func copyChunks(w io.Writer, r io.Reader, size int64) (int64, error) {
	// With one byte more the first read sees the end.
	buf := make([]byte, min(streamChunk-1, size)+1)
	var total int64
	for {
		n, err := io.ReadFull(r, buf)
		total += int64(n)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return total, err
			}
		}
		switch err {
		case nil:
		case io.EOF, io.ErrUnexpectedEOF:
			return total, nil
		default:
			return total, err
		}
	}
}

func sendPlain(stream bytestream.ByteStream_ReadServer, r io.Reader, size int64) (int64, error) {
	return copyChunks(readSender{stream}, r, size)
}

func sendCompressed(stream bytestream.ByteStream_ReadServer, r io.Reader, size int64) (int64, error) {
	// The encoder writes block by block; what compresses well would go out in
	// tiny messages.
	out := bufio.NewWriterSize(readSender{stream}, streamChunk)
	z, err := zstd.NewWriter(out,
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))
	if err != nil {
		return 0, err
	}
	n, err := copyChunks(z, r, size)
	if err != nil {
		_ = z.Close() // the stream is broken, nothing more can be sent
		return n, err
	}
	if err := z.Close(); err != nil {
		return n, err
	}
	return n, out.Flush()
}
