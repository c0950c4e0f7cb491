package intake

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestWholeOf truncates a message at each byte. The remainder must decode, begin as the message
// does, and have all complete fields.
func TestWholeOf(t *testing.T) {
	m := &repb.BatchUpdateBlobsRequest{
		InstanceName: "main", DigestFunction: repb.DigestFunction_SHA256,
		Requests: []*repb.BatchUpdateBlobsRequest_Request{
			{Digest: &repb.Digest{Hash: "one", SizeBytes: 1}, Data: []byte("1")}, {Digest: &repb.Digest{Hash: "two", SizeBytes: 300}, Data: []byte("two")},
		},
	}
	encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	last := 0
	for n := range len(encoded) + 1 {
		got := &repb.BatchUpdateBlobsRequest{}
		if err := proto.Unmarshal(wholeOf(encoded[:n], got.ProtoReflect().Descriptor(), deepest), got); err != nil {
			t.Fatalf("%d bytes: %v", n, err)
		}
		size := proto.Size(got)
		if size < last || n-size > len("\x12\x0a\x0a\x03two") {
			t.Errorf("of %d bytes there are %d: %v", n, size, got)
		}
		last = size
		if n == len(encoded)-3 { // in the last field
			want := proto.Clone(m).(*repb.BatchUpdateBlobsRequest)
			want.DigestFunction = 0
			want.Requests[1].Data = nil
			if !proto.Equal(got, want) {
				t.Errorf("in the last field: %v", got)
			}
		}
	}
	if last != len(encoded) {
		t.Errorf("of a whole message there are %d of %d bytes", last, len(encoded))
	}
	digest := (&repb.Digest{}).ProtoReflect().Descriptor()
	for name, b := range map[string][]byte{
		"an end of a group":  {0x0c},
		"no number":          {0x00, 0x01},
		"an endless length":  bytes.Repeat([]byte{0xff}, 20),
		"a text that is cut": {0x0a, 5, 'x'},
	} {
		if got := wholeOf(b, digest, deepest); len(got) != 0 {
			t.Errorf("%s: %x", name, got)
		}
	}
	deep := bytes.Repeat([]byte{0x0a, 0xff, 0x7f, 0x32, 0xff, 0x7f}, 1000) // lists in lists, all of them cut off
	if got := wholeOf(deep, (&structpb.ListValue{}).ProtoReflect().Descriptor(), 3); len(got) != 6 {
		t.Errorf("looked at 3 deep it is %x", got)
	}
}

// echo is a service that answers each message with what it received of it.
var echo = grpc.ServiceDesc{
	ServiceName: "test.Echo",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName: "Put", ClientStreams: true, ServerStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error {
			for {
				m := &repb.BatchUpdateBlobsRequest{}
				if err := stream.RecvMsg(m); errors.Is(err, io.EOF) {
					return nil
				} else if err != nil {
					return err
				}
				if err := stream.SendMsg(m); err != nil {
					return err
				}
			}
		},
	}},
}

// echoed is its method.
const echoed = "/test.Echo/Put"

// TestTruncated sends messages that are too large, encoded or decoded, between others. The
// beginning of these must arrive, and the others unchanged. If the method does not truncate, the
// first of them ends the call.
func TestTruncated(t *testing.T) {
	const limit = 256 << 10
	of := func(data int) *repb.BatchUpdateBlobsRequest {
		one := &repb.BatchUpdateBlobsRequest_Request{Digest: &repb.Digest{Hash: "h"}, Data: make([]byte, data)}
		return &repb.BatchUpdateBlobsRequest{InstanceName: "main", Requests: []*repb.BatchUpdateBlobsRequest_Request{one}}
	}
	small, most, large, begin := of(1), of(limit-100), of(4*limit), of(0)
	dense := &repb.BatchUpdateBlobsRequest{Requests: slices.Repeat([]*repb.BatchUpdateBlobsRequest_Request{{}}, limit/2-10)}
	denseBegin := &repb.BatchUpdateBlobsRequest{Requests: dense.Requests[:beginBytes/2]}
	for _, truncates := range []bool{true, false} {
		conn, server := serveConn(t, Options{
			Bounds: BoundsFor(64 << 20), Methods: map[string]Limits{echoed: {Bytes: limit, Truncates: truncates}},
		}, &service{})
		for _, caller := range []string{"somebody", ""} {
			for _, options := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
				all := []exchange{{small, small}, {most, most}, {large, begin}, {small, small}}
				if caller != "" {
					all = append(all, exchange{dense, denseBegin}, exchange{small, small})
				}
				err := exchanged(t, conn, caller, options, all)
				if truncates && err != nil || !truncates && status.Code(err) != codes.ResourceExhausted {
					t.Errorf("%q, truncates %t: %v", caller, truncates, err)
				}
			}
		}
		eventually(t, server.ledger.free)
	}
}

// An exchange is a message, and the part of it that must arrive.
type exchange struct{ sent, want *repb.BatchUpdateBlobsRequest }

// exchanged sends messages in one call and compares what arrives of each, until the call ends with
// an error.
func exchanged(t *testing.T, conn *grpc.ClientConn, caller string, options []grpc.CallOption, all []exchange) error {
	t.Helper()
	stream, err := conn.NewStream(as(t, caller), &echo.Streams[0], echoed, options...)
	if err != nil {
		t.Fatal(err)
	}
	for n, e := range all {
		_ = stream.SendMsg(e.sent) // the error comes as the error of the call
		got := &repb.BatchUpdateBlobsRequest{}
		if err := stream.RecvMsg(got); err != nil {
			return err
		}
		if !proto.Equal(got, e.want) {
			t.Errorf("%q: of message %d arrived %.100v", caller, n, got)
		}
	}
	if err := errors.Join(stream.CloseSend(), stream.RecvMsg(&repb.BatchUpdateBlobsRequest{})); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}
