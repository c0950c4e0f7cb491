package scheduler

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/proto/fsac"
	"github.com/forerunner-build/forerunner/proto/historical"
	"github.com/forerunner-build/forerunner/proto/iscc"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
)

// A field is one field encoded by hand: its number is written here, not taken
// from a schema.
type field struct {
	number protowire.Number
	bytes  []byte
}

func tagged(n protowire.Number, t protowire.Type, rest []byte) field {
	return field{n, append(protowire.AppendTag(nil, n, t), rest...)}
}

func raw(n protowire.Number, b []byte) field {
	return tagged(n, protowire.BytesType, protowire.AppendBytes(nil, b))
}
func text(n protowire.Number, s string) field       { return raw(n, []byte(s)) }
func msg(n protowire.Number, fields ...field) field { return raw(n, joined(fields)) }
func number(n protowire.Number, v uint64) field {
	return tagged(n, protowire.VarintType, protowire.AppendVarint(nil, v))
}

func double(n protowire.Number, v float64) field {
	return tagged(n, protowire.Fixed64Type, protowire.AppendFixed64(nil, math.Float64bits(v)))
}

func joined(fields []field) []byte {
	var b []byte
	for _, f := range fields {
		b = append(b, f.bytes...)
	}
	return b
}

// A golden is a message, its bytes made by hand, and the file that holds them.
type golden struct {
	file    string
	message proto.Message
	fields  []field
}

var (
	someHash   = strings.Repeat("ab", 32)
	someDigest = &repb.Digest{Hash: someHash, SizeBytes: 300}
	someTime   = &timestamppb.Timestamp{Seconds: 1_700_000_000, Nanos: 5}
	somePlace  = &repb.Platform{Properties: []*repb.Platform_Property{{Name: "OS", Value: "linux"}}}
	nothing    = &emptypb.Empty{}
)

func digestField(n protowire.Number) field { return msg(n, text(1, someHash), number(2, 300)) }
func timeField(n protowire.Number) field   { return msg(n, number(1, 1_700_000_000), number(2, 5)) }
func placeField(n protowire.Number) field {
	return msg(n, msg(1, text(1, "OS"), text(2, "linux")))
}

func remoteworkerGoldens() []golden {
	type x = remoteworker.CurrentState_Executing
	state := func(name string, n protowire.Number, inner []field, m *x) golden {
		m.ActionDigest = someDigest
		return golden{
			"current_state_" + name, executing(m),
			[]field{msg(2, digestField(1), msg(n, inner...))},
		}
	}
	return []golden{
		{
			"synchronize_request",
			&remoteworker.SynchronizeRequest{
				WorkerId: map[string]string{"host": "a"}, InstanceNamePrefix: "acme", Platform: somePlace,
				CurrentState: &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: nothing}},
				SizeClass:    8, PreferBeingIdle: true,
			},
			[]field{
				msg(1, text(1, "host"), text(2, "a")), text(2, "acme"), placeField(3),
				msg(4, msg(1)), number(5, 8), number(6, 1),
			},
		},
		state("started", 2, nil, &x{ExecutionState: &remoteworker.CurrentState_Executing_Started{Started: nothing}}),
		state("fetching_inputs", 3, nil,
			&x{ExecutionState: &remoteworker.CurrentState_Executing_FetchingInputs{FetchingInputs: nothing}}),
		state("running", 4, nil, &x{ExecutionState: &remoteworker.CurrentState_Executing_Running{Running: nothing}}),
		state("uploading_outputs", 5, nil,
			&x{ExecutionState: &remoteworker.CurrentState_Executing_UploadingOutputs{UploadingOutputs: nothing}}),
		state("completed", 6, []field{text(5, "done")}, &x{ExecutionState: &remoteworker.CurrentState_Executing_Completed{
			Completed: &repb.ExecuteResponse{Message: "done"},
		}}),
		{
			"synchronize_response_continue", &remoteworker.SynchronizeResponse{NextSynchronizationAt: someTime},
			[]field{timeField(1)},
		},
		{
			"synchronize_response_idle",
			&remoteworker.SynchronizeResponse{
				NextSynchronizationAt: someTime,
				DesiredState:          &remoteworker.DesiredState{WorkerState: &remoteworker.DesiredState_Idle{Idle: nothing}},
			},
			[]field{timeField(1), msg(2, msg(1))},
		},
		{
			"desired_state_executing",
			&remoteworker.DesiredState{WorkerState: &remoteworker.DesiredState_Executing_{
				Executing: &remoteworker.DesiredState_Executing{
					ActionDigest: someDigest, Action: &repb.Action{DoNotCache: true}, QueuedTimestamp: someTime,
					AuxiliaryMetadata:  []*anypb.Any{{TypeUrl: "t/x", Value: []byte{1}}},
					InstanceNameSuffix: "web", W3CTraceContext: map[string]string{"traceparent": "00"},
					DigestFunction: repb.DigestFunction_BLAKE3,
				},
			}},
			[]field{msg(2, digestField(1), msg(2, number(7, 1)), timeField(4),
				msg(6, text(1, "t/x"), raw(2, []byte{1})), text(7, "web"),
				msg(8, text(1, "traceparent"), text(2, "00")), number(9, 9))},
		},
	}
}

func cacheGoldens() []golden {
	bloom := &fsac.FileSystemAccessProfile{BloomFilter: []byte{0x0f, 0x80}, BloomFilterHashFunctions: 10}
	bloomFields := []field{raw(1, []byte{0x0f, 0x80}), number(2, 10)}
	stats := &iscc.PreviousExecutionStats{
		SizeClasses: map[uint32]*iscc.PerSizeClassStats{8: {
			PreviousExecutions: []*iscc.PreviousExecution{
				{Outcome: &iscc.PreviousExecution_Failed{Failed: nothing}},
				{Outcome: &iscc.PreviousExecution_TimedOut{TimedOut: &durationpb.Duration{Seconds: 60}}},
				{Outcome: &iscc.PreviousExecution_Succeeded{Succeeded: &durationpb.Duration{Nanos: 7}}},
			},
			InitialPageRankProbability: 0.25,
		}},
		LastSeenFailure: someTime,
	}
	statsFields := []field{
		msg(1, number(1, 8), msg(2,
			msg(1, msg(1)), msg(1, msg(2, number(1, 60))), msg(1, msg(3, number(2, 7))), double(3, 0.25))),
		timeField(2),
	}
	return []golden{
		{"file_system_access_profile", bloom, bloomFields},
		{
			"get_file_system_access_profile_request",
			&fsac.GetFileSystemAccessProfileRequest{
				InstanceName: "acme", DigestFunction: repb.DigestFunction_SHA256, ReducedActionDigest: someDigest,
			},
			[]field{text(1, "acme"), number(2, 1), digestField(3)},
		},
		{
			"update_file_system_access_profile_request",
			&fsac.UpdateFileSystemAccessProfileRequest{
				InstanceName: "acme", DigestFunction: repb.DigestFunction_SHA256, ReducedActionDigest: someDigest,
				FileSystemAccessProfile: bloom,
			},
			[]field{text(1, "acme"), number(2, 1), digestField(3), msg(4, bloomFields...)},
		},
		{"previous_execution_stats", stats, statsFields},
		{
			"get_previous_execution_stats_request",
			&iscc.GetPreviousExecutionStatsRequest{
				InstanceName: "acme", ReducedActionDigest: someDigest, DigestFunction: repb.DigestFunction_SHA256,
			},
			[]field{text(1, "acme"), digestField(2), number(3, 1)},
		},
		{
			"update_previous_execution_stats_request",
			&iscc.UpdatePreviousExecutionStatsRequest{
				InstanceName: "acme", ReducedActionDigest: someDigest, PreviousExecutionStats: stats,
				DigestFunction: repb.DigestFunction_SHA256,
			},
			[]field{text(1, "acme"), digestField(2), msg(3, statsFields...), number(4, 1)},
		},
	}
}

func storedGoldens() []golden {
	return []golden{{
		"historical_execute_response",
		&historical.HistoricalExecuteResponse{
			ActionDigest: someDigest, ExecuteResponse: &repb.ExecuteResponse{Result: &repb.ActionResult{ExitCode: 1}, Message: "failed"},
		},
		[]field{digestField(1), msg(3, msg(1, number(4, 1)), text(5, "failed"))},
	}}
}

func usageGoldens() []golden {
	return []golden{
		{
			"file_pool_resource_usage",
			&resourceusage.FilePoolResourceUsage{
				FilesCreated: 1, FilesCountPeak: 2, FilesSizeBytesPeak: 3, ReadsCount: 4,
				ReadsSizeBytes: 5, WritesCount: 6, WritesSizeBytes: 7, TruncatesCount: 8,
			},
			numbers(1, 2, 3, 4, 5, 6, 7, 8),
		},
		{
			"posix_resource_usage",
			&resourceusage.POSIXResourceUsage{
				UserTime: &durationpb.Duration{Seconds: 1}, SystemTime: &durationpb.Duration{Seconds: 2},
				MaximumResidentSetSize: 3, PageReclaims: 7, PageFaults: 8, Swaps: 9,
				BlockInputOperations: 10, BlockOutputOperations: 11, MessagesSent: 12, MessagesReceived: 13,
				SignalsReceived: 14, VoluntaryContextSwitches: 15, InvoluntaryContextSwitches: 16,
				TerminationSignal: "KILL",
			},
			slices.Concat([]field{msg(1, number(1, 1)), msg(2, number(1, 2)), number(3, 3)},
				numbers(7, 8, 9, 10, 11, 12, 13, 14, 15, 16), []field{text(17, "KILL")}),
		},
		{
			"monetary_resource_usage",
			&resourceusage.MonetaryResourceUsage{Expenses: map[string]*resourceusage.MonetaryResourceUsage_Expense{
				"power": {Currency: "EUR", Cost: 0.5},
			}},
			[]field{msg(1, text(1, "power"), msg(2, text(1, "EUR"), double(2, 0.5)))},
		},
		{
			"input_root_resource_usage",
			&resourceusage.InputRootResourceUsage{DirectoriesResolved: 1, DirectoriesRead: 2, FilesRead: 3},
			numbers(1, 2, 3),
		},
	}
}

// numbers returns a varint field for each n that has its own number as value.
func numbers(ns ...protowire.Number) []field {
	fields := make([]field, len(ns))
	for i, n := range ns {
		fields[i] = number(n, uint64(n))
	}
	return fields
}

var update = flag.Bool("update", false, "rewrite golden files")

// TestWireBytes holds the bytes of each message that others send or expect.
// testdata/wire has one line for each top-level field, "<hex> # <number>".
func TestWireBytes(t *testing.T) {
	for _, g := range slices.Concat(remoteworkerGoldens(), cacheGoldens(), storedGoldens(), usageGoldens()) {
		t.Run(g.file, func(t *testing.T) {
			file := filepath.Join("testdata", "wire", g.file+".txt")
			if *update {
				var b strings.Builder
				fmt.Fprintf(&b, "# %s\n", g.message.ProtoReflect().Descriptor().FullName())
				for _, f := range g.fields {
					fmt.Fprintf(&b, "%x # %d\n", f.bytes, f.number)
				}
				if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want := readHex(t, file)
			if byHand := joined(g.fields); !bytes.Equal(byHand, want) {
				t.Errorf("encoded by hand: %x\nin the file: %x", byHand, want)
			}
			got, err := proto.MarshalOptions{Deterministic: true}.Marshal(g.message)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("marshalled: %x, %v\nin the file: %x", got, err, want)
			}
			back := g.message.ProtoReflect().New().Interface()
			if err := proto.Unmarshal(want, back); err != nil || !proto.Equal(back, g.message) {
				t.Errorf("unmarshalled: %v, %v", back, err)
			}
		})
	}
}

func readHex(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []byte
	for line := range strings.SplitSeq(string(b), "\n") {
		digits, _, _ := strings.Cut(line, "#")
		part, err := hex.DecodeString(strings.TrimSpace(digits))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, part...)
	}
	return out
}

// TestWireNames holds the paths of the services.
func TestWireNames(t *testing.T) {
	for got, want := range map[string]string{
		remoteworker.OperationQueue_Synchronize_FullMethodName:                  "/buildbarn.remoteworker.OperationQueue/Synchronize",
		fsac.FileSystemAccessCache_GetFileSystemAccessProfile_FullMethodName:    "/buildbarn.fsac.FileSystemAccessCache/GetFileSystemAccessProfile",
		fsac.FileSystemAccessCache_UpdateFileSystemAccessProfile_FullMethodName: "/buildbarn.fsac.FileSystemAccessCache/UpdateFileSystemAccessProfile",
		iscc.InitialSizeClassCache_GetPreviousExecutionStats_FullMethodName:     "/buildbarn.iscc.InitialSizeClassCache/GetPreviousExecutionStats",
		iscc.InitialSizeClassCache_UpdatePreviousExecutionStats_FullMethodName:  "/buildbarn.iscc.InitialSizeClassCache/UpdatePreviousExecutionStats",
	} {
		if got != want {
			t.Errorf("path %s, want %s", got, want)
		}
	}
}
