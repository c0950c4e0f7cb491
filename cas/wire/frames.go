package wire

import (
	"fmt"
	"io"
	"math/bits"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// MaxZstdWindow limits the memory that a compressed upload can allocate on the server; it is
	// the window of zstd's strongest level.
	MaxZstdWindow = 128 << 20
	// streamWindow is the window of our own streams. A larger one takes memory at both ends, and
	// makes few files smaller.
	streamWindow = 1 << 20
	// encoderTables is the measured memory of a stream encoder, besides its window.
	encoderTables = 900 << 10
)

// NewStreamEncoder returns an encoder that writes about size bytes to w.
func NewStreamEncoder(w io.Writer, size int64) (*zstd.Encoder, error) {
	return zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(windowFor(size)), zstd.WithZeroFrames(true))
}

// windowFor returns the window for a stream of that many bytes.
func windowFor(size int64) int {
	const least = 64 << 10
	return 1 << bits.Len64(uint64(min(max(size, least), streamWindow))-1)
}

// EncoderBytes returns the memory of NewStreamEncoder.
func EncoderBytes(size int64) int64 { return int64(windowFor(size)) + encoderTables }

// decoderBytes returns the memory of a stream decoder for frames with a window: that, and some
// blocks.
func decoderBytes(window int64) int64 { return window + 4*min(window, 128<<10) + 64<<10 }

// Frames reads a zstd stream for a decoder, and limits its memory. A decoder allocates the window
// in a frame's header before it has seen more, so a few bytes can ask for gigabytes. Therefore no
// frame may ask for more than the size of the blob. admit is called with the decoder's memory for
// the first frame; later frames cannot have more.
type Frames struct {
	in      io.Reader
	size    int64 // of the blob
	admit   func(bytes int64) error
	granted int64 // the window that was admitted; 0: none yet

	header   []byte // read from in, to be passed on
	left     int64  // of in, to be passed on after that
	at       func() error
	checksum bool  // the frame ends with one
	err      error // why there is no more after these
	refused  error
}

// NewFrames returns Frames for the stream in of a blob of that many bytes.
func NewFrames(in io.Reader, size int64, admit func(bytes int64) error) *Frames {
	f := &Frames{in: in, size: size, admit: admit}
	f.at = f.frame
	return f
}

// Refused returns the error with which memory was refused, or nil.
func (f *Frames) Refused() error { return f.refused }

// Read implements io.Reader.
func (f *Frames) Read(p []byte) (int, error) {
	for len(f.header) == 0 && f.left == 0 && f.err == nil {
		f.err = f.at()
	}
	switch {
	case len(f.header) > 0:
		n := copy(p, f.header)
		f.header = f.header[n:]
		return n, nil
	case f.left > 0:
		n, err := f.in.Read(p[:min(int64(len(p)), f.left)])
		f.left -= int64(n)
		return n, err
	}
	return 0, f.err
}

// take adds n bytes to the header.
func (f *Frames) take(n int) error {
	had := len(f.header)
	f.header = append(f.header, make([]byte, n)...)
	n, err := io.ReadFull(f.in, f.header[had:])
	f.header = f.header[:had+n]
	return err
}

// frame reads the beginning of a frame (RFC 8878, section 3.1).
func (f *Frames) frame() error {
	f.header = nil
	if err := f.take(5); err != nil {
		return err
	}
	h := f.header
	switch magic := uint32(h[0]) | uint32(h[1])<<8 | uint32(h[2])<<16 | uint32(h[3])<<24; {
	case magic&^0xf == 0x184d2a50: // to be skipped
		if err := f.take(3); err != nil {
			return err
		}
		h = f.header
		f.left = int64(h[4]) | int64(h[5])<<8 | int64(h[6])<<16 | int64(h[7])<<24
		return nil
	case magic != 0xfd2fb528:
		return f.nonsense()
	}
	single := h[4]&(1<<5) != 0
	more := []int{0, 1, 2, 4}[h[4]&3] + []int{0, 2, 4, 8}[h[4]>>6]
	if !single || h[4]>>6 == 0 { // the window, or a size in one byte
		more++
	}
	if err := f.take(more); err != nil {
		return err
	}
	var head zstd.Header
	if err := head.Decode(f.header); err != nil {
		return f.nonsense()
	}
	f.checksum, f.at = head.HasCheckSum, f.block
	if f.refused = f.window(head); f.refused != nil {
		f.header = nil
	}
	return f.refused
}

// window decides about the window of a frame, and writes a smaller one into its header if that is
// enough.
func (f *Frames) window(head zstd.Header) error {
	window := int64(min(head.WindowSize, 1<<62))
	if head.HasFCS && head.FrameContentSize > uint64(f.size) {
		return status.Errorf(codes.InvalidArgument, "a zstd frame announces %d bytes, the blob has %d", head.FrameContentSize, f.size)
	}
	if head.SingleSegment {
		window = int64(head.FrameContentSize)
	} else if window > f.size {
		descriptor := leastWindow(f.size)
		if smaller := windowOf(descriptor); smaller < window {
			f.header[5], window = descriptor, smaller
		}
	}
	switch {
	case window > MaxZstdWindow:
		return status.Errorf(codes.InvalidArgument,
			"a zstd frame needs a window of %d bytes; the maximum is %d", window, MaxZstdWindow)
	case f.granted == 0:
		f.granted = max(window, 1)
		return f.admit(decoderBytes(window))
	case window > f.granted:
		return status.Errorf(codes.InvalidArgument,
			"a zstd frame needs a window of %d bytes, the first one needed %d", window, f.granted)
	}
	return nil
}

// windowOf returns the window that a descriptor stands for.
func windowOf(descriptor byte) int64 {
	base := int64(1) << (10 + descriptor>>3)
	return base + base/8*int64(descriptor&7)
}

// leastWindow returns the descriptor of the smallest window of at least size bytes.
func leastWindow(size int64) byte {
	for d := range 255 {
		if windowOf(byte(d)) >= size {
			return byte(d)
		}
	}
	return 255
}

// block reads the beginning of a block.
func (f *Frames) block() error {
	f.header = nil
	if err := f.take(3); err != nil {
		return err
	}
	h := f.header
	head := int64(h[0]) | int64(h[1])<<8 | int64(h[2])<<16
	switch kind := head >> 1 & 3; kind {
	case 1: // one byte, many times
		f.left = 1
	case 3:
		return f.nonsense()
	default:
		f.left = head >> 3
	}
	if head&1 == 1 { // the last
		f.at = f.frame
		if f.checksum {
			f.left += 4
		}
	}
	return nil
}

// nonsense makes the decoder report the error.
func (f *Frames) nonsense() error { return fmt.Errorf("%w: not a zstd stream", io.ErrUnexpectedEOF) }
