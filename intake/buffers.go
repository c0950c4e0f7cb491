package intake

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Reserve waits until a call has n bytes for its handler and its answer, for as long as a request
// may wait. The call keeps them until its answer is sent, or Reserve is called with 0; a further
// call raises the number. The context is that of the call, which makes one Reserve at a time. If
// one caller can never have so many, the error is INVALID_ARGUMENT. Unlimited calls have room at
// once.
func Reserve(ctx context.Context, n int64) error {
	in := receiverOf(ctx)
	if in == nil {
		return nil
	}
	if most := in.ledger.bounds.BuffersOfOne; n > most {
		return status.Errorf(codes.InvalidArgument, "the answer takes %d bytes of memory, and one caller can have %d: "+
			"compress with a smaller window, or not at all, or raise tuning.memory_limit", n, most)
	}
	return in.ledger.reserveBuffers(ctx, in.charge, n)
}

// receiverOf returns the receiver of a call that is charged to a caller; nil: it is not.
func receiverOf(ctx context.Context) *receiver {
	if b := beginningOf(ctx); b != nil {
		return b.receiver
	}
	return nil
}

// known is a stream of an identified caller.
type known struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (k *known) Context() context.Context { return k.ctx }

// answer sends the answer of a unary call. It waits for memory beyond the reservation of its
// handler.
func (r *receiver) answer(reply any) error {
	if m, ok := reply.(proto.Message); ok && r.charge != nil {
		if size := int64(proto.Size(m)); size > smallMessage {
			if err := Reserve(r.Context(), size); err != nil {
				return err
			}
		}
	}
	return r.SendMsg(reply)
}

// SendMsg implements grpc.ServerStream. A call whose client does not read yields to others, like
// one whose client does not send. One that ends keeps its memory until gRPC has sent its answers.
func (r *receiver) SendMsg(m any) error {
	if r.charge == nil {
		return r.ServerStream.SendMsg(m)
	}
	if p, ok := m.(proto.Message); ok && proto.Size(p) > smallAnswer {
		r.ledger.answered(r.charge)
		m = &answer{p, func() { r.ledger.sent(r.charge) }}
	}
	r.ledger.enterPhase(r.charge, arriving)
	err := r.ServerStream.SendMsg(m)
	if err != nil && r.ledger.isCondemned(r.charge) {
		return errYielded
	}
	r.ledger.enterPhase(r.charge, busy)
	return err
}

// An answer is a message that reports when gRPC no longer needs its bytes.
type answer struct {
	proto.Message
	sent func()
}

// pool has the buffers of frames and messages. None is more than twice as large as its content:
// gRPC's own pool uses a whole MiB for a message of 33 KiB.
var pool = newPool()

func newPool() mem.BufferPool {
	var exponents []uint8
	for e := uint8(8); 1<<e <= largestPooled; e++ {
		exponents = append(exponents, e)
	}
	p, err := mem.NewBinaryTieredBufferPool(exponents...)
	if err != nil {
		panic(err) // the exponents are as they are
	}
	return p
}

// codec is gRPC's own, and reports when answers are sent.
type codec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	a, ok := v.(*answer)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	data := pool.Get(proto.Size(a.Message))
	encoded, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend((*data)[:0], a.Message)
	if err != nil {
		pool.Put(data)
		a.sent()
		return nil, err
	}
	*data = encoded
	return mem.BufferSlice{mem.NewBuffer(data, toldPool{pool, a.sent})}, nil
}

// A toldPool reports when it gets a buffer back.
type toldPool struct {
	mem.BufferPool
	back func()
}

// Put implements mem.BufferPool.
func (p toldPool) Put(data *[]byte) {
	p.BufferPool.Put(data)
	p.back()
}
