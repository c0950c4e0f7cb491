package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/server/servertest"
	"github.com/forerunner-build/forerunner/cas/span"
	"github.com/forerunner-build/forerunner/cas/wire"
)

// A chunkConn decodes messages like the connections of the programs.
type chunkConn struct{ grpc.ClientConnInterface }

func (c chunkConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.ClientConnInterface.NewStream(ctx, desc, method, append(opts, grpc.ForceCodecV2(wire.Codec()))...)
}

// raw is a message with any bytes.
func raw(b []byte) *bytestream.ReadResponse {
	r := &bytestream.ReadResponse{}
	r.ProtoReflect().SetUnknown(b)
	return r
}

// longVarint encodes n in more bytes than it takes.
func longVarint(b []byte, n uint64) []byte {
	b = protowire.AppendVarint(b, n)
	b[len(b)-1] |= 0x80
	return append(b, 0x80, 0)
}

// sendOddly sends data in messages as no server makes them, all of which are right, and then
// perhaps breaks the stream.
func sendOddly(random *rand.Rand, data []byte, send func(m any) error) error {
	field := func(b, data []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(b, 10, protowire.BytesType), data)
	}
	other := protowire.AppendBytes(protowire.AppendTag(nil, 99, protowire.BytesType), make([]byte, random.IntN(70_000)))
	for len(data) > 0 {
		n := 1 + random.IntN(len(data))
		part := data[:n]
		var m []byte
		switch random.IntN(12) {
		case 0: // the last one of several fields counts
			m = field(field(nil, make([]byte, random.IntN(300_000))), part)
		case 1:
			m = field(other, part)
		case 2:
			m = append(field(nil, part), other...)
		case 3:
			m = append(longVarint(longVarint(nil, 10<<3|2), uint64(n)), part...)
		case 4:
			if err := errors.Join(send(raw(nil)), send(raw(other)), send(raw(field(nil, nil)))); err != nil {
				return err
			}
			continue
		case 5: // no message
			if random.IntN(4) == 0 {
				return send(raw(field(nil, part)[:n]))
			}
			continue
		case 6:
			if random.IntN(4) == 0 {
				return errNetBroken
			}
			continue
		default:
			m = field(nil, part)
		}
		if err := send(raw(m)); err != nil {
			return err
		}
		data = data[n:]
	}
	return nil
}

// TestOddEncodings: whatever encodings a server uses, and however readers leave, each reader has
// the bytes of its blob, in memory that many use one after another.
func TestOddEncodings(t *testing.T) {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	next := func() *rand.Rand {
		mu.Lock()
		defer mu.Unlock()
		return rand.New(rand.NewPCG(random.Uint64(), 3))
	}
	f := servertest.Start(t, servertest.Config{Stream: onMethod("Read", func(s *netStream) {
		random, held := next(), []byte(nil)
		most := 1 << random.IntN(22)
		s.sending = func(m any) error {
			held = append(held, m.(*bytestream.ReadResponse).GetData()...)
			if n := len(m.(*bytestream.ReadResponse).GetData()); n == wire.StreamChunk && len(held) < most {
				return errNetDrop
			}
			data := held
			held = nil
			if err := sendOddly(random, data, s.ServerStream.SendMsg); err != nil {
				return err
			}
			return errNetDrop
		}
	})})
	var blobs [][]byte
	var digests []digest.Digest
	for i, n := range []int{0, 1, 32 << 10, wire.StreamChunk - 1, wire.StreamChunk + 1, 1 << 20, 1<<20 + 1, 5_000_000, 3 * wire.StreamChunk} {
		blobs = append(blobs, servertest.Bytes(uint64(i), n))
		digests = append(digests, f.Put(t, digest.SHA256, blobs[i]))
	}
	var readers sync.WaitGroup
	for range 6 {
		readers.Go(func() {
			random := next()
			for range 12 {
				c := New(chunkConn{f.Conn}, Options{NoCompression: random.IntN(2) == 0})
				c.link.firstPause = 1
				if err := readOddly(t.Context(), c, random, digests, blobs); err != nil {
					t.Error(err)
				}
			}
		})
	}
	readers.Wait()
}

// readOddly reads a blob or a part of one, to its end or not.
func readOddly(ctx context.Context, c *Client, random *rand.Rand, digests []digest.Digest, blobs [][]byte) error {
	i := random.IntN(len(blobs))
	d, data := digests[i], blobs[i]
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var got bytes.Buffer
	leaves := 1 << 30
	if random.IntN(3) == 0 {
		leaves = random.IntN(len(data) + 1)
	}
	take := sink(func(p []byte) error {
		got.Write(p)
		if got.Len() > leaves {
			if random.IntN(2) == 0 {
				cancel()
			}
			return errNetBroken
		}
		return nil
	})
	part := span.Span{To: int64(len(data))}
	var err error
	if random.IntN(2) == 0 {
		part.From = random.Int64N(part.To + 1)
		part.To -= random.Int64N(part.To - part.From + 1)
		err = c.FetchRange(ctx, d, part, take)
	} else {
		err = c.Fetch(ctx, []digest.Digest{d}, func(_ digest.Digest, r io.Reader) error {
			_, err := io.CopyBuffer(take, r, make([]byte, 1+random.IntN(300_000)))
			return err
		})
	}
	switch want := data[part.From:part.To]; {
	case !bytes.HasPrefix(want, got.Bytes()):
		return fmt.Errorf("%d bytes of %v of %s are others", got.Len(), part, d)
	case err == nil && got.Len() < len(want):
		return fmt.Errorf("only %d bytes of %v of %s came", got.Len(), part, d)
	case err != nil && (got.Len() <= leaves || errors.Is(err, cas.ErrCorrupt)):
		return fmt.Errorf("%v of %s: %w", part, d, err)
	}
	return nil
}

// A sink is a writer.
type sink func(p []byte) error

func (s sink) Write(p []byte) (int, error) { return len(p), s(p) }

// TestNothingButMessages: a server that goes on to send messages without data has stalled.
func TestNothingButMessages(t *testing.T) {
	f := servertest.Start(t, servertest.Config{Stream: onMethod("Read", func(s *netStream) {
		s.sending = func(any) error {
			for {
				select {
				case <-time.After(time.Millisecond):
				case <-s.Context().Done():
					return s.Context().Err()
				}
				if err := s.ServerStream.SendMsg(raw(nil)); err != nil {
					return err
				}
			}
		}
	})})
	d := f.Put(t, digest.SHA256, netNoise(5<<20))
	for _, compress := range []bool{false, true} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		c := clientOf(f, Options{NoCompression: !compress, RetryFor: 1, StallAfter: time.Second})
		if _, err := c.Read(ctx, d); status.Code(err) != codes.Unavailable || ctx.Err() != nil {
			t.Errorf("compressed %t: %v", compress, err)
		}
		cancel()
	}
}

// TestFramesWithoutEnd: a compressed stream of nothing but frames that are skipped is wrong.
func TestFramesWithoutEnd(t *testing.T) {
	skipped := append([]byte("\x50\x2a\x4d\x18\x00\x00\x01\x00"), make([]byte, 1<<16)...)
	f := servertest.Start(t, servertest.Config{Stream: onMethod("Read", func(s *netStream) {
		s.sending = func(any) error {
			for {
				if err := s.ServerStream.SendMsg(&bytestream.ReadResponse{Data: skipped}); err != nil {
					return err
				}
			}
		}
	})})
	d := f.Put(t, digest.SHA256, netNoise(2<<20))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := clientOf(f, Options{RetryFor: 1}).Read(ctx, d); !errors.Is(err, cas.ErrCorrupt) {
		t.Error(err)
	}
}
