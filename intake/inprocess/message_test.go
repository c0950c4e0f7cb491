package inprocess

import (
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// A counting pool counts buffers that are not back.
type countingPool struct {
	mem.BufferPool
	out int
}

func (p *countingPool) Get(n int) *[]byte  { p.out++; return p.BufferPool.Get(n) }
func (p *countingPool) Put(buffer *[]byte) { p.out--; p.BufferPool.Put(buffer) }

// TestMessage: what is decoded has all fields and shares no memory with the original, and buffers
// return to their pool.
func TestMessage(t *testing.T) {
	pool := &countingPool{BufferPool: mem.DefaultBufferPool()}
	for _, n := range []int{0, 10, 100_000} {
		original := &bytestream.WriteRequest{ResourceName: "name", Data: []byte(strings.Repeat("x", n)), FinishWrite: true}
		m, err := encode(original, pool)
		if err != nil {
			t.Fatal(err)
		}
		if want := proto.Size(original); m.size() != want {
			t.Errorf("%d bytes, want %d", m.size(), want)
		}
		want := proto.Clone(original)
		clear(original.Data)
		got := &bytestream.WriteRequest{WriteOffset: 5} // which it does not keep
		if err := m.decode(got); err != nil || !proto.Equal(got, want) {
			t.Errorf("%d bytes: it is not what was sent: %v", n, err)
		}
		again, err := encode(want, pool) // in the same buffer
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("%d bytes: the next message changes the last one, %v", n, err)
		}
		again.free()
	}
	if pool.out != 0 {
		t.Errorf("%d buffers are not back", pool.out)
	}
}

// TestNoMessage: what is no message, or has text that is not UTF-8, is an error.
func TestNoMessage(t *testing.T) {
	for _, m := range []any{nil, "text", &repb.Digest{Hash: "\xff"}} {
		if _, err := encode(m, mem.NopBufferPool{}); status.Code(err) != codes.Internal {
			t.Errorf("%v: %v", m, err)
		}
	}
	m, err := encode(&repb.Digest{Hash: "x"}, mem.NopBufferPool{})
	if err != nil {
		t.Fatal(err)
	}
	var text string
	if err := m.decode(&text); status.Code(err) != codes.Internal {
		t.Errorf("decoded as text: %v", err)
	}
}
