package intake

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of all messages
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// raw is gRPC's stream at the level of the transport. grpc.ServerStream reads a whole message at
// once; here the length is known before the rest is read. TestMessages fails if gRPC no longer has
// it.
type raw interface {
	ReadMessageHeader(header []byte) error
	RecvCompress() string
}

// within is the same of a call from within the process; see package inprocess.
type within interface {
	// Receive returns the size of the next message. If that is at most so many bytes, it is decoded.
	Receive(m any, most int) (size int, err error)
}

// A receiver reads the requests of one call, each within its bounds.
type receiver struct {
	grpc.ServerStream
	raw    raw    // nil: the call comes from within
	direct within // nil: it does not; others are not charged
	ledger *ledger
	charge *charge // nil: it is not bounded
	keeps  *Conn   // which is busy meanwhile; nil: a guest's does not count as busy
	limit  int     // of bytes of one message
	// truncates: of a larger one the beginning is received.
	truncates bool
	rest      time.Duration
	expire    func() // ends the call
	expired   atomic.Bool
	first     bool // the next message is the first
	single    bool // only one is allowed
}

// RecvMsg implements grpc.ServerStream.
func (r *receiver) RecvMsg(m any) error {
	if r.charge == nil {
		return r.receive(m)
	}
	r.ledger.arrive(r.charge)
	err := r.receive(m)
	switch {
	case err != nil && r.expired.Load():
		return status.Error(codes.DeadlineExceeded, "the request did not arrive in time")
	case err != nil && r.ledger.isCondemned(r.charge):
		return errYielded
	case err != nil:
		return err
	case r.single: // its client can send no more
		r.ledger.enterPhase(r.charge, busy)
		return nil
	}
	return r.ledger.reserve(r.Context(), r.charge, windows, int64(r.bounds().Window))
}

func (r *receiver) receive(m any) error {
	if r.direct != nil {
		return r.receiveWithin(m)
	}
	charged(r.Context())
	wait := r.rest
	if r.first {
		r.first, wait = false, r.bounds().Wait
	}
	clock := r.within(wait)
	defer func() { clock.stop() }()
	var header [5]byte
	if err := r.raw.ReadMessageHeader(header[:]); err != nil {
		return err
	}
	length := int64(binary.BigEndian.Uint32(header[1:]))
	compressed := header[0] == 1
	if length > int64(r.limit) {
		if !r.truncates || compressed {
			return tooLong(length, r.limit)
		}
		clock.stop()
		clock = r.within(patience(r.bounds().Wait, int(length)))
		return r.receiveBegin(length, m)
	}
	cost := length
	if compressed { // the size is known at its end
		cost = int64(r.limit)
	}
	if r.charge != nil && (cost > smallMessage || wait == 0) {
		clock.stop()
		if err := r.reserve(cost); err != nil {
			return err
		}
		clock = r.within(patience(r.bounds().Wait, int(length)))
	}
	whole, err := r.read(int(length))
	if err != nil {
		return err
	}
	defer func() { whole.Free() }()
	if compressed {
		plain, err := r.decompress(whole)
		if err != nil {
			return err
		}
		whole.Free()
		whole = plain
	}
	if err := r.decode(whole, m); err != nil {
		return err
	}
	if r.single {
		return r.end()
	}
	return nil
}

// receiveWithin receives a message from within the process. It has arrived as a whole already.
func (r *receiver) receiveWithin(m any) error {
	n, err := r.direct.Receive(m, r.limit)
	if err == nil && n > r.limit {
		return tooLong(int64(n), r.limit)
	}
	return err
}

func tooLong(n int64, limit int) error {
	return status.Errorf(codes.ResourceExhausted, "the request has %d bytes; the maximum is %d", n, limit)
}

// read returns the next n bytes. The transport would keep each frame until all have come, and one
// of a byte takes fifty: so it is asked to fill one buffer, as it does with the header of a
// message.
func (r *receiver) read(n int) (mem.Buffer, error) {
	var data *[]byte
	if mem.IsBelowBufferPoolingThreshold(n) {
		small := make([]byte, n)
		data = &small
	} else {
		data = pool.Get(n)
	}
	if n > 0 {
		if err := r.raw.ReadMessageHeader(*data); err == io.EOF {
			return nil, io.ErrUnexpectedEOF
		} else if err != nil {
			return nil, err
		}
	}
	return mem.NewBuffer(data, pool), nil
}

// reserve waits until there is room for a message of so many bytes, unless it is small.
func (r *receiver) reserve(n int64) error {
	if n <= smallMessage {
		return nil
	}
	if err := r.ledger.reserve(r.Context(), r.charge, messages, n); err != nil {
		return err
	}
	r.ledger.enterPhase(r.charge, arriving)
	return nil
}

// decode decodes a message when there is room for its decoded size beyond its bytes.
func (r *receiver) decode(whole mem.Buffer, m any) error {
	encoded := whole.ReadOnlyData()
	if decoded, ok := m.(proto.Message); ok {
		n, most := r.expansion(encoded, decoded)
		switch {
		case r.truncates && (n > most || len(encoded) > r.limit):
			return decodeBegin(encoded[:min(len(encoded), beginBytes)], decoded)
		case n > most:
			return status.Errorf(codes.ResourceExhausted,
				"decoding the request takes %d bytes of memory, and one caller can have %d: send less at a time", n, most)
		case n > smallMessage:
			if err := r.ledger.reserveBuffers(r.Context(), r.charge, n); err != nil {
				return err
			}
		}
	}
	if err := encoding.GetCodecV2("proto").Unmarshal(mem.BufferSlice{whole}, m); err != nil {
		return status.Errorf(codes.Internal, "decode the request: %v", err)
	}
	return nil
}

// expansion returns the decoded size of a message beyond its bytes, and its limit. An unlimited
// caller needs nothing.
func (r *receiver) expansion(encoded []byte, m proto.Message) (n, most int64) {
	if r.charge == nil {
		return 0, 0
	}
	return Expansion(encoded, m), r.ledger.bounds.BuffersOfOne
}

// end returns an error if a second message comes, whose bytes would never be read.
func (r *receiver) end() error {
	var header [5]byte
	switch err := r.raw.ReadMessageHeader(header[:]); err {
	case io.EOF:
		return nil
	case nil:
		return status.Error(codes.Internal, "a second request in a call that takes one")
	default:
		return err
	}
}

func (r *receiver) bounds() *Bounds {
	if r.charge == nil {
		return &unbounded
	}
	return &r.ledger.bounds
}

// unbounded are for trusted callers.
var unbounded Bounds

// A clock ends a call unless it is stopped in time. The zero clock never does.
type clock struct{ timer *time.Timer }

func (c clock) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// within starts a clock; 0 is for ever.
func (r *receiver) within(wait time.Duration) clock {
	if r.charge == nil || wait == 0 {
		return clock{}
	}
	return clock{time.AfterFunc(wait, func() {
		r.expired.Store(true)
		r.ledger.refused("late")
		r.expire()
	})}
}

// decompress returns the decompressed data, which it does not change.
func (r *receiver) decompress(data mem.Buffer) (mem.Buffer, error) {
	name := r.raw.RecvCompress()
	c := encoding.GetCompressor(name)
	if c == nil {
		return nil, status.Errorf(codes.Unimplemented, "compression %q of requests is not supported", name)
	}
	var out bytes.Buffer
	plain, err := c.Decompress(bytes.NewReader(data.ReadOnlyData()))
	if err == nil {
		_, err = io.Copy(&out, io.LimitReader(plain, int64(r.limit)+1))
	}
	switch {
	case err != nil:
		return nil, status.Error(codes.Internal, fmt.Errorf("decompress the request: %w", err).Error())
	case out.Len() > r.limit && !r.truncates:
		return nil, status.Errorf(codes.ResourceExhausted, "the request has more than %d bytes", r.limit)
	}
	return mem.SliceBuffer(out.Bytes()), nil
}

// errExpired is the cause of the end of calls that were ended here.
var errExpired = errors.New("the server has ended the call")

// Expired reports whether the server ended a call, not its client.
func Expired(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errExpired) }

// expireOf returns the function that ends a call.
func expireOf(ctx context.Context) func() {
	b := beginningOf(ctx)
	if b == nil {
		return func() {}
	}
	return func() { b.end(errExpired) }
}
