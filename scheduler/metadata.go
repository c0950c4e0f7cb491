package scheduler

import (
	"fmt"
	"unicode/utf8"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/anypb"
)

// requestMetadataKey is where clients say who asks (REv2, RequestMetadata).
const requestMetadataKey = "build.bazel.remote.execution.v2.requestmetadata-bin"

// maxMetadataBytes bounds what is in it: each operation keeps it, and hands it on.
const maxMetadataBytes = 64 << 10

// Metadata is what a client says of itself and of what it wants an action for (REv2,
// RequestMetadata), as far as anything depends on it.
//
// Each waiting operation has one, and its stream has the header that it came in. So its strings are
// parts of that header: to keep one for longer than the operation, clone it.
type Metadata struct {
	ToolInvocation, Correlated, Mnemonic, Target, Configuration string
	// encoded is all of it, empty if it did not come with a request.
	encoded string
}

// decodeMetadata reads an encoded RequestMetadata, of which it copies nothing.
func decodeMetadata(encoded string) (Metadata, error) {
	m := Metadata{encoded: encoded}
	b := []byte(encoded)
	for at := 0; at < len(b); {
		number, kind, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return Metadata{}, protowire.ParseError(n)
		}
		at += n
		size := protowire.ConsumeFieldValue(number, kind, b[at:])
		if size < 0 {
			return Metadata{}, protowire.ParseError(size)
		}
		if field := m.field(number); field != nil && kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b[at:])
			*field = encoded[at+size-len(v) : at+size]
			if !utf8.ValidString(*field) {
				return Metadata{}, fmt.Errorf("field %d is not UTF-8", number)
			}
		}
		at += size
	}
	return m, nil
}

// field returns where a field of RequestMetadata goes, nil if nowhere.
func (m *Metadata) field(number protowire.Number) *string {
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

// metadataOf takes what came in a message.
func metadataOf(m *repb.RequestMetadata) Metadata {
	return Metadata{
		ToolInvocation: m.GetToolInvocationId(), Correlated: m.GetCorrelatedInvocationsId(),
		Mnemonic: m.GetActionMnemonic(), Target: m.GetTargetId(), Configuration: m.GetConfigurationId(),
	}
}

// message undoes metadataOf.
func (m *Metadata) message() *repb.RequestMetadata {
	return &repb.RequestMetadata{
		ToolInvocationId: m.ToolInvocation, CorrelatedInvocationsId: m.Correlated,
		ActionMnemonic: m.Mnemonic, TargetId: m.Target, ConfigurationId: m.Configuration,
	}
}

// auxiliary is what the worker copies into the result.
func (op *Operation) auxiliary() []*anypb.Any {
	if op.Request.encoded == "" {
		return op.Auxiliary
	}
	all := make([]*anypb.Any, 0, 1+len(op.Auxiliary))
	all = append(all, &anypb.Any{TypeUrl: requestMetadataType, Value: []byte(op.Request.encoded)})
	return append(all, op.Auxiliary...)
}
