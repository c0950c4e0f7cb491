package wire

import (
	"sync"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // Codec
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// The sizes of data that Codec decodes itself.
const (
	leastChunk = 32 << 10
	mostChunk  = 1 << 20
)

// chunks has buffers for the data of ReadResponses, of *[]byte.
var chunks = sync.Pool{New: func() any { b := make([]byte, StreamChunk); return &b }}

// Codec returns a codec for connections to a storage: gRPC's own, which takes three copies and a
// cleared MiB for the data of each ReadResponse, except that these take one copy, to memory that was
// given to Recycle.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

type codec struct{ encoding.CodecV2 }

// Name implements encoding.CodecV2: calls name no codec, as without this one.
func (codec) Name() string { return "" }

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ok := v.(*bytestream.ReadResponse)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	head := headOfData(data)
	if head == 0 {
		return c.CodecV2.Unmarshal(data, v)
	}
	r.Reset()
	r.Data = chunk(data.Len() - head)
	at := 0
	for _, b := range data {
		part := b.ReadOnlyData()
		skip := min(head, len(part))
		head -= skip
		at += copy(r.Data[at:], part[skip:])
	}
	return nil
}

// headOfData returns the length of what is before the data in an encoded ReadResponse; 0 if it is
// not only data, or too little or too much of it.
func headOfData(data mem.BufferSlice) int {
	const fieldData = 10
	if len(data) == 0 || data.Len() < leastChunk || data.Len() > mostChunk {
		return 0
	}
	first := data[0].ReadOnlyData()
	number, kind, tag := protowire.ConsumeTag(first)
	if tag < 0 || number != fieldData || kind != protowire.BytesType {
		return 0
	}
	size, length := protowire.ConsumeVarint(first[tag:])
	if length < 0 || size != uint64(data.Len()-tag-length) {
		return 0
	}
	return tag + length
}

// chunk returns a buffer of that length, with any content.
func chunk(n int) []byte {
	b := *chunks.Get().(*[]byte)
	if cap(b) < n {
		return make([]byte, n)
	}
	return b[:n]
}

// Recycle takes the data of a received ReadResponse, which nobody uses any more.
func Recycle(data []byte) {
	if cap(data) >= StreamChunk && cap(data) <= mostChunk {
		chunks.Put(&data)
	}
}
