package operation

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// maxMetadataBytes limits it: each operation keeps it, and passes it on.
const maxMetadataBytes = 64 << 10

// requestMetadataType is the type URL of a RequestMetadata in an Any.
const requestMetadataType = "type.googleapis.com/build.bazel.remote.execution.v2.RequestMetadata"

// decodeMetadata decodes a RequestMetadata (REv2) without copying: each waiting operation has one,
// and its stream keeps the header that it came in.
func decodeMetadata(encoded string) (request.Metadata, error) {
	m := request.Metadata{Encoded: encoded}
	b := []byte(encoded)
	for at := 0; at < len(b); {
		number, kind, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return request.Metadata{}, protowire.ParseError(n)
		}
		at += n
		size := protowire.ConsumeFieldValue(number, kind, b[at:])
		if size < 0 {
			return request.Metadata{}, protowire.ParseError(size)
		}
		if field := fieldOf(&m, number); field != nil && kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b[at:])
			*field = encoded[at+size-len(v) : at+size]
			if !utf8.ValidString(*field) {
				return request.Metadata{}, fmt.Errorf("field %d is not UTF-8", number)
			}
		}
		at += size
	}
	return m, nil
}

// fieldOf returns where a field of RequestMetadata goes, nil if nowhere.
func fieldOf(m *request.Metadata, number protowire.Number) *string {
	switch number {
	case 3:
		return &m.ToolInvocation
	case 4:
		return &m.Correlated
	case 5:
		return &m.Mnemonic
	case 6:
		return &m.Target
	case 7:
		return &m.Configuration
	}
	return nil
}

// Auxiliary is the metadata that the worker copies into the result of an operation.
func Auxiliary(op *request.Operation) []*anypb.Any {
	if op.Request.Encoded == "" {
		return op.Auxiliary
	}
	all := make([]*anypb.Any, 0, 1+len(op.Auxiliary))
	all = append(all, &anypb.Any{TypeUrl: requestMetadataType, Value: []byte(op.Request.Encoded)})
	return append(all, op.Auxiliary...)
}
