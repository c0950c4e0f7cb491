package intake

import (
	"bytes"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// TestExpansion compares the estimated memory of messages with the real one.
func TestExpansion(t *testing.T) {
	digests := &repb.FindMissingBlobsRequest{}
	for range 1000 {
		digests.BlobDigests = append(digests.BlobDigests, &repb.Digest{Hash: strings.Repeat("0", 64), SizeBytes: 1 << 20})
	}
	encoded, err := proto.Marshal(digests)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		encoded     []byte
		least, most int64 // for each byte
	}{
		"digests":       {encoded, 1, 3},
		"empty digests": {bytes.Repeat([]byte{0x12, 0}, 1000), 50, 70},
		"one text":      {append([]byte{0x0a, 0xe8, 0x07}, bytes.Repeat([]byte{'x'}, 1000)...), 0, 0},
		"damaged":       {[]byte{0x12, 200}, 0, 0},
	} {
		if n := Expansion(c.encoded, digests) / int64(len(c.encoded)); n < c.least || n > c.most {
			t.Errorf("%s: %d for each byte, want %d to %d", name, n, c.least, c.most)
		}
	}
	for name, c := range map[string]struct {
		encoded []byte
		want    int64
	}{
		"a text":                 {append([]byte{0x0a, 100}, make([]byte, 100)...), textBytes + 100},
		"an unknown text":        {append([]byte{0x7a, 100}, make([]byte, 100)...), 0},
		"a message":              {[]byte{0x12, 3, 0x0a, 1, 'x'}, textBytes + elementBytes + textBytes + 1},
		"unknown in a message":   {[]byte{0x12, 3, 0x7a, 1, 'x'}, textBytes + elementBytes},
		"an unknown number":      {[]byte{0x78, 1}, 0},
		"an unknown empty group": {[]byte{0x7b, 0x7c}, 0},
	} {
		if n := Known(c.encoded, digests); n != c.want {
			t.Errorf("%s: %d, want %d", name, n, c.want)
		}
	}
}

// An encodedCodec sends what it is given.
type encodedCodec struct{}

func (encodedCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (encodedCodec) Unmarshal(mem.BufferSlice, any) error { return nil }
func (encodedCodec) Name() string                         { return "proto" }

// TestDenseMessage has a message of many empty ones. It must count with its decoded size, and must
// not be decoded if that exceeds what one caller can have.
func TestDenseMessage(t *testing.T) {
	conn, s := serveConn(t, Options{
		Bounds:  BoundsFor(64 << 20),
		Methods: map[string]Limits{repb.ContentAddressableStorage_FindMissingBlobs_FullMethodName: {Bytes: 4 << 20}},
	}, &service{})
	find := func(empty int, options ...grpc.CallOption) error {
		return conn.Invoke(as(t, "somebody"), repb.ContentAddressableStorage_FindMissingBlobs_FullMethodName,
			bytes.Repeat([]byte{0x12, 0}, empty), &repb.FindMissingBlobsResponse{}, append(options, grpc.ForceCodecV2(encodedCodec{}))...)
	}
	for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
		if err := find(1000, options...); status.Code(err) != codes.Unimplemented {
			t.Errorf("a few: %v", err)
		}
		if err := find(1_000_000, options...); status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "decoding the request") {
			t.Errorf("a million: %v", err)
		}
	}
	eventually(t, s.ledger.free)
}
