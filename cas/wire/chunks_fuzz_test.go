package wire

import (
	"bytes"
	"testing"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/protobuf/proto"
)

// FuzzCodec compares Codec with gRPC's own for messages of a beginning, many bytes, and an end, of
// which only the first frame is cut, in memory that has other bytes.
func FuzzCodec(f *testing.F) {
	f.Add([]byte("\x52\x80\x80\x02"), uint32(32<<10), []byte(nil), uint16(1))
	f.Add([]byte("\xd2\x00\x80\x80\x82\x00"), uint32(32<<10), []byte("\x08\x01"), uint16(7))
	f.Add([]byte("\x52\x01a\x52\x80\x80\x02"), uint32(32<<10), []byte("\x52\x00"), uint16(3))
	f.Add([]byte("\x52\x80\x80\x40"), uint32(1<<20), []byte(nil), uint16(4))
	f.Add([]byte("\x52\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), uint32(32<<10), []byte(nil), uint16(12))
	f.Add([]byte("\x52\x80\x80\x02"), uint32(32<<10), []byte(nil), uint16(0))
	f.Fuzz(func(t *testing.T, head []byte, n uint32, end []byte, first uint16) {
		n = min(n, 1<<20)
		message := append(append(bytes.Clone(head), bytes.Repeat([]byte("x"), int(n))...), end...)
		cutAt := min(int(first), len(message))
		frames := append(cut(message[:cutAt], max(cutAt, 1)), cut(message[cutAt:], 16<<10)...)
		want, got := &bytestream.ReadResponse{}, &bytestream.ReadResponse{}
		wrong := proto.Unmarshal(message, want)
		switch err := Codec().Unmarshal(frames, got); {
		case (err != nil) != (wrong != nil):
			t.Fatalf("%v, want %v", err, wrong)
		case err == nil && !proto.Equal(got, want):
			t.Fatal("other content")
		}
		clear(got.GetData())
		Recycle(got.GetData())
	})
}
