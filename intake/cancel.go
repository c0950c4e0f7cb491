package intake

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"

	"golang.org/x/net/http2"
)

// mostCancelled is how many cancelled calls of a connection are remembered.
const mostCancelled = 256

// cancels are the calls of one connection that its client has cancelled lately. A handler may learn
// of the end of its call only when the connection has ended, too.
type cancels struct {
	// coming is the stream of the latest headers. It belongs to the goroutine that reads.
	coming uint32

	mu      sync.Mutex
	streams []uint32 // guarded by mu
}

func (c *cancels) add(stream uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) == mostCancelled {
		c.streams = append(c.streams[:0], c.streams[1:]...)
	}
	c.streams = append(c.streams, stream)
}

func (c *cancels) has(stream uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Contains(c.streams, stream)
}

// An origin is the stream of a call, and its connection; nil: it came through no Gate.
type origin struct {
	through *Conn
	stream  uint32
}

// originOf returns the origin of a call whose headers have come last on its connection.
func originOf(ctx context.Context) origin {
	if c := arrivedThrough(ctx); c != nil {
		return origin{c, c.cancels.coming}
	}
	return origin{}
}

// Cancelled reports whether the client has cancelled a call. If so, it did that before its
// connection ended. After hundreds of other cancelled calls that may be forgotten.
func Cancelled(ctx context.Context) bool {
	b := beginningOf(ctx)
	return b != nil && b.from.through != nil && b.from.through.cancels.has(b.from.stream)
}

// stream is that of the present frame.
func (f *frames) stream() uint32 { return binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31) }

// readCode reads bytes of the payload of a frame.
func (f *frames) readCode(p []byte) {
	if f.kind() != http2.FrameRSTStream {
		return
	}
	for _, b := range p {
		f.code = f.code<<8 | uint32(b)
	}
}

// noteStream notes what cancels must know of a frame that has come.
func (f *frames) noteStream() {
	switch {
	case f.through == nil:
	case f.kind() == http2.FrameHeaders:
		f.through.cancels.coming = f.stream()
	case f.kind() == http2.FrameRSTStream && http2.ErrCode(f.code) == http2.ErrCodeCancel:
		f.through.cancels.add(f.stream())
	}
}
