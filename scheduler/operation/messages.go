package operation

import (
	"encoding/hex"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
)

// Types of messages in an Any.
const (
	operationMetadataType = "type.googleapis.com/build.bazel.remote.execution.v2.ExecuteOperationMetadata"
	executeResponseType   = "type.googleapis.com/build.bazel.remote.execution.v2.ExecuteResponse"
)

// Longrunning converts a status. Its errors are gRPC statuses.
func Longrunning(st *event.Status) (*longrunningpb.Operation, error) {
	m := &longrunningpb.Operation{
		Name: st.Name, Metadata: &anypb.Any{TypeUrl: operationMetadataType, Value: encodeMetadata(st)},
	}
	if !st.Done() {
		return m, nil
	}
	response := st.Response
	if note := ExtrasOf(st.Operation).Note; note != "" {
		response = core.Annotated(response, note)
	}
	encoded, err := proto.Marshal(response)
	if err != nil {
		return nil, status.Errorf(codes.Internal, "pack response of %s: %v", st.Name, err)
	}
	m.Done, m.Result = true, &longrunningpb.Operation_Response{
		Response: &anypb.Any{TypeUrl: executeResponseType, Value: encoded},
	}
	return m, nil
}

// encodeMetadata returns an encoded ExecuteOperationMetadata. Clients get one with each stage of
// each operation, and to make the message and encode that takes several times as long.
func encodeMetadata(st *event.Status) []byte {
	var buffer [128]byte
	b := make([]byte, 0, 512)
	b = appendNumber(b, 1, int64(st.Stage))
	b = appendBytes(b, 2, appendDigest(buffer[:0], st.Digest))
	if st.Stage == repb.ExecutionStage_EXECUTING {
		b = appendStreamName(b, 3, st.Name, names.StdoutSuffix)
		b = appendStreamName(b, 4, st.Name, names.StderrSuffix)
	}
	if !st.Done() { // else all of it is in the response
		b = appendBytes(b, 5, appendProgress(buffer[:0], st))
	}
	return appendNumber(b, 6, int64(st.Digest.Function().Proto()))
}

// appendProgress appends the ExecutedActionMetadata of an operation that is not done.
func appendProgress(b []byte, st *event.Status) []byte {
	var buffer [32]byte
	if st.Worker != "" {
		b = appendBytes(b, 1, st.Worker)
	}
	b = appendBytes(b, 2, appendTime(buffer[:0], st.Queued))
	if st.Worker != "" {
		b = appendBytes(b, 3, appendTime(buffer[:0], st.Started))
	}
	return b
}

func appendStreamName(b []byte, field protowire.Number, operation, stream string) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(names.StreamPrefix)+len(operation)+len(stream)))
	return append(append(append(b, names.StreamPrefix...), operation...), stream...)
}

func appendDigest(b []byte, d digest.Digest) []byte {
	var buffer [digest.HashSize]byte
	b = protowire.AppendTag(b, 1, protowire.BytesType)
	b = protowire.AppendVarint(b, 2*digest.HashSize)
	return appendNumber(hex.AppendEncode(b, d.AppendHash(buffer[:0])), 2, d.SizeBytes())
}

func appendTime(b []byte, t time.Time) []byte {
	return appendNumber(appendNumber(b, 1, t.Unix()), 2, int64(t.Nanosecond()))
}

// appendNumber appends a field that is left out if it is zero.
func appendNumber(b []byte, field protowire.Number, n int64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), uint64(n))
}

// appendBytes appends a field that is a message or a text.
func appendBytes[T []byte | string](b []byte, field protowire.Number, v T) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return append(protowire.AppendVarint(b, uint64(len(v))), v...)
}
