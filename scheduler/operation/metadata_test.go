package operation

import (
	"maps"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// FuzzMetadata compares our decoding of RequestMetadata with the library's.
func FuzzMetadata(f *testing.F) {
	whole := &repb.RequestMetadata{
		ToolDetails: &repb.ToolDetails{ToolName: "bazel", ToolVersion: "8.0.0"}, ActionId: "abc",
		ToolInvocationId: "invocation", CorrelatedInvocationsId: "build", ActionMnemonic: "GoCompile",
		TargetId: "//a:b", ConfigurationId: "fast",
	}
	encoded, err := proto.Marshal(whole)
	if err != nil {
		f.Fatal(err)
	}
	twice := protowire.AppendString(protowire.AppendTag(encoded, 6, protowire.BytesType), "//c:d")
	for _, seed := range [][]byte{
		nil, encoded, twice, encoded[:len(encoded)-1], encoded[:1],
		protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 7), // of another type
		protowire.AppendString(protowire.AppendTag(nil, 5, protowire.BytesType), "\xff"),
		protowire.AppendTag(protowire.AppendTag(nil, 9, protowire.StartGroupType), 9, protowire.EndGroupType),
		protowire.AppendTag(nil, 0, protowire.BytesType),
	} {
		f.Add(string(seed))
	}
	f.Fuzz(func(t *testing.T, encoded string) {
		want := &repb.RequestMetadata{}
		wantErr := proto.Unmarshal([]byte(encoded), want)
		got, err := decodeMetadata(encoded)
		// Unused fields, such as ToolDetails, are not decoded.
		if wantErr == nil && err != nil {
			t.Fatalf("error %v of what the library reads: %v", err, want)
		}
		if wantErr != nil {
			return
		}
		expected := request.Metadata{
			ToolInvocation: want.GetToolInvocationId(), Correlated: want.GetCorrelatedInvocationsId(), Mnemonic: want.GetActionMnemonic(),
			Target: want.GetTargetId(), Configuration: want.GetConfigurationId(), Encoded: encoded,
		}
		if got != expected {
			t.Errorf("decoded %+v, want %+v", got, expected)
		}
	})
}

// TestMetadataIsNotCopied: each queued operation would have a copy of its stream's header.
func TestMetadataIsNotCopied(t *testing.T) {
	b, err := proto.Marshal(&repb.RequestMetadata{
		ToolInvocationId: "an invocation", TargetId: "//a/folder/with/a/long/name:target", ActionMnemonic: "CppCompile",
	})
	if err != nil {
		t.Fatal(err)
	}
	encoded := string(b)
	allocs := testing.AllocsPerRun(100, func() {
		if m, err := decodeMetadata(encoded); err != nil || m.Mnemonic != "CppCompile" {
			t.Errorf("decoded %+v, %v", m, err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations, want none", allocs)
	}
}

// TestTraceHeadersAreHints: an invalid trace header must not keep the action from its worker.
func TestTraceHeadersAreHints(t *testing.T) {
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", "00-aa-bb-01", "tracestate", "a=\xff"))
	op := &request.Operation{}
	if err := carry(ctx, op); err != nil || !maps.Equal(op.Trace, map[string]string{"traceparent": "00-aa-bb-01"}) {
		t.Errorf("carried %q, %v", op.Trace, err)
	}
	op = &request.Operation{}
	ctx = metadata.NewIncomingContext(t.Context(), metadata.Pairs("tracestate", strings.Repeat("a", maxTraceBytes+1)))
	if err := carry(ctx, op); err != nil || op.Trace != nil {
		t.Errorf("carried %d bytes, %v", len(op.Trace["tracestate"]), err)
	}
}
