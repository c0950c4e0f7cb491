package wire

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// cut returns b in buffers of at most n bytes.
func cut(b []byte, n int) (s mem.BufferSlice) {
	for len(b) > 0 {
		s = append(s, mem.SliceBuffer(b[:min(n, len(b))]))
		b = b[min(n, len(b)):]
	}
	return s
}

// TestCodec has messages in frames of many sizes, which mean the same as to gRPC's own codec, in
// memory that had other data before.
func TestCodec(t *testing.T) {
	random := make([]byte, 2<<20)
	for i := range random {
		random[i] = byte(rand.Uint32())
	}
	encoded := func(n int) []byte {
		b, err := proto.Marshal(&bytestream.ReadResponse{Data: random[:n]})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	messages := map[string][]byte{
		"empty": nil, "small": encoded(100), "chunk": encoded(StreamChunk), "more": encoded(StreamChunk + 1), "most": encoded(mostChunk), "two MiB": encoded(2 << 20),
		"twice":   append(encoded(StreamChunk), encoded(100)...),
		"unknown": append(encoded(StreamChunk), 0x08, 1),
		"another": append([]byte{0x08, 1}, encoded(StreamChunk)...),
		"short":   encoded(StreamChunk)[:StreamChunk-1],
		"no data": bytes.Repeat([]byte{0xff}, StreamChunk),
	}
	for what, message := range messages {
		for _, frame := range []int{1, 3, 5, 16 << 10, 1 << 20, 4 << 20} {
			want := &bytestream.ReadResponse{}
			wrong := proto.Unmarshal(message, want)
			got := &bytestream.ReadResponse{Data: []byte("earlier")}
			switch err := Codec().Unmarshal(cut(message, frame), got); {
			case (err != nil) != (wrong != nil):
				t.Errorf("%s in frames of %d: %v, want %v", what, frame, err, wrong)
			case err == nil && !proto.Equal(got, want):
				t.Errorf("%s in frames of %d: other data", what, frame)
			}
			clear(got.GetData())
			Recycle(got.GetData())
		}
	}
	other := &bytestream.ReadRequest{}
	if err := Codec().Unmarshal(cut([]byte("\n\x01a"), 1), other); err != nil || other.GetResourceName() != "a" {
		t.Errorf("another message: %v, %v", other, err)
	}
}

// BenchmarkCodec decodes chunks as they come from a connection.
func BenchmarkCodec(b *testing.B) {
	message, err := proto.Marshal(&bytestream.ReadResponse{Data: make([]byte, StreamChunk)})
	if err != nil {
		b.Fatal(err)
	}
	frames, codec := cut(message, 16<<10), Codec()
	b.SetBytes(StreamChunk)
	b.ReportAllocs()
	for b.Loop() {
		r := &bytestream.ReadResponse{}
		if err := codec.Unmarshal(frames, r); err != nil {
			b.Fatal(err)
		}
		Recycle(r.GetData())
	}
}
