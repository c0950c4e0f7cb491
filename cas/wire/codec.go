package wire

import (
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	// StreamChunk is how much data one message of a stream carries.
	StreamChunk = 256 << 10
	// CompressAbove is the size from which a blob in a batch is worth compressing.
	CompressAbove = 512
)

// NewBatchDecoder returns a decoder whose DecodeAll fails when the result exceeds the given
// capacity.
func NewBatchDecoder() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(MaxZstdWindow))
	if err != nil {
		panic(err) // options that never fail
	}
	return d
}

// NewBatchEncoder returns an encoder for the entries of batches.
func NewBatchEncoder() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		panic(err) // options that never fail
	}
	return e
}

// CopyChunks copies in full chunks, or smaller ones if r has no more than size bytes, and returns
// the number of bytes read. It does not use io.CopyBuffer, which lets some readers and writers
// choose the sizes.
func CopyChunks(w io.Writer, r io.Reader, size int64) (int64, error) {
	// With one byte more the first read sees the end.
	buf := make([]byte, min(StreamChunk-1, size)+1)
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
