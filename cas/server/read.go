package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/wire"
	"github.com/forerunner-build/forerunner/intake"
)

// Read sends a blob, or a part of it. The offset counts bytes of the blob even if they are sent
// compressed.
func (v *byteStreamService) Read(r *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	return v.s.readStatus(v.read(r, stream))
}

func (v *byteStreamService) read(r *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	if err := checkResourceHeader(stream.Context(), r.GetResourceName()); err != nil {
		return err
	}
	res, err := wire.ParseRead(r.GetResourceName())
	if err != nil {
		return err
	}
	d, offset, limit := res.Digest, r.GetReadOffset(), r.GetReadLimit()
	switch {
	case limit < 0:
		return status.Errorf(codes.InvalidArgument, "read %s: read_limit %d is negative", d, limit)
	case limit > 0 && res.Compressor != repb.Compressor_IDENTITY:
		return status.Errorf(codes.InvalidArgument, "read %s: compressed blobs take no read_limit", d)
	case offset < 0 || offset > d.SizeBytes():
		return status.Errorf(codes.OutOfRange, "read %s: read_offset %d is not within the blob", d, offset)
	}
	blobs := v.s.reads(res.Instance)
	f, err := blobs.OpenBlob(stream.Context(), d)
	if err != nil {
		return err
	}
	defer f.Close()
	length := d.SizeBytes() - offset
	if limit > 0 {
		length = min(length, limit)
	}
	part := io.NewSectionReader(f, offset, length)
	send, needed := sendPlain, 2*min(wire.StreamChunk, length)
	if res.Compressor == repb.Compressor_ZSTD {
		send, needed = sendCompressed, needed+wire.StreamChunk+wire.EncoderBytes(length)
	}
	if err := v.s.options.WaitForMemory(stream.Context(), needed); err != nil {
		return err
	}
	if length == d.SizeBytes() && length > 0 {
		return readWhole(stream.Context(), blobs, openBlob{d, f}, func(copy copier) error {
			_, err := send(stream, part, length, copy)
			return err
		})
	}
	n, err := send(stream, part, length, wire.CopyChunks)
	if err == nil && n < length {
		if err = blobs.Verdict(stream.Context(), d); err == nil {
			err = fmt.Errorf("file ends %d bytes early: %w", length-n, cas.ErrCorrupt)
		}
	}
	if err != nil {
		return fmt.Errorf("read blob %s: %w", d, err)
	}
	return nil
}

// An openBlob is a blob and its file.
type openBlob struct {
	digest digest.Digest
	file   *os.File
}

// readWhole has all of a blob sent with a copier that keeps the end back until it
// knows that the bytes are right. A damaged blob is missing then.
func readWhole(ctx context.Context, blobs cas.Readable, b openBlob, send func(copier) error) error {
	d := b.digest
	sound, err := blobs.Reading(d, b.file)
	if err == nil {
		err = send(func(w io.Writer, r io.Reader, _ int64) (int64, error) { return copySound(w, r, d) })
	}
	if err == nil {
		sound()
		return nil
	}
	if errors.Is(err, errUnsound) {
		if failed := blobs.Verdict(ctx, d); failed != nil {
			err = failed
		} else {
			err = status.Errorf(codes.Unavailable, "blob %s changed while it was read, try again", d)
		}
	}
	return fmt.Errorf("read blob %s: %w", d, err)
}

// checkResourceHeader enforces that the header, if there, repeats the resource
// name of the request.
func checkResourceHeader(ctx context.Context, name string) error {
	for _, h := range intake.Header(ctx, wire.ResourceHeader) {
		if h != name {
			return fmt.Errorf("%w: header %s is %.300q but the request's resource name is %.300q",
				wire.ErrInvalidName, wire.ResourceHeader, h, name)
		}
	}
	return nil
}

// A readSender sends each Write as a message.
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

// A copier copies r, which has size bytes, to w in chunks.
type copier func(w io.Writer, r io.Reader, size int64) (int64, error)

// errUnsound: the bytes do not match the blob.
var errUnsound = errors.New("the bytes are not the blob's")

// copySound copies like wire.CopyChunks, and writes the last chunk only when all of r matches the
// blob d. Otherwise the error is errUnsound.
func copySound(w io.Writer, r io.Reader, d digest.Digest) (int64, error) {
	hasher := digest.NewHasher(d.Function())
	size := min(wire.StreamChunk, d.SizeBytes())
	next, last := make([]byte, size), []byte(nil)
	for {
		n, err := io.ReadFull(r, next)
		_, _ = hasher.Write(next[:n]) // never fails
		ended := err == io.EOF || err == io.ErrUnexpectedEOF || hasher.SizeBytes() >= d.SizeBytes()
		if err != nil && !ended {
			return hasher.SizeBytes(), fmt.Errorf("%w: %w", errUnsound, err)
		}
		if ended && hasher.Digest() != d {
			return hasher.SizeBytes(), errUnsound
		}
		if last != nil {
			if _, err := w.Write(last); err != nil {
				return hasher.SizeBytes(), err
			}
		}
		if ended {
			_, err := w.Write(next[:n])
			return hasher.SizeBytes(), err
		}
		if last == nil {
			last = make([]byte, size)
		}
		next, last = last[:cap(last)], next[:n]
	}
}

func sendPlain(stream bytestream.ByteStream_ReadServer, r io.Reader, size int64, copy copier) (int64, error) {
	return copy(readSender{stream}, r, size)
}

func sendCompressed(stream bytestream.ByteStream_ReadServer, r io.Reader, size int64, copy copier) (int64, error) {
	// The encoder writes block by block; well compressible blocks would become tiny messages.
	out := bufio.NewWriterSize(readSender{stream}, wire.StreamChunk)
	z, err := wire.NewStreamEncoder(out, size)
	if err != nil {
		return 0, err
	}
	n, err := copy(z, r, size)
	if err != nil {
		out.Reset(io.Discard) // nothing more must be sent
		_ = z.Close()
		return n, err
	}
	if err := z.Close(); err != nil {
		return n, err
	}
	return n, out.Flush()
}
