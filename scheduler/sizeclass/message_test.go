package sizeclass

import (
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
)

func TestReducedKeepsCommandAndPlatform(t *testing.T) {
	command := &repb.Digest{Hash: "ab", SizeBytes: 3}
	platform := &repb.Platform{Properties: []*repb.Platform_Property{{Name: "a", Value: "b"}}}
	a := &repb.Action{
		CommandDigest: command, Platform: platform,
		InputRootDigest: command, DoNotCache: true, Salt: []byte("x"), Timeout: durationpb.New(1),
	}
	// The wire format by hand: field 1 {1: "ab", 2: 3}, field 10 {1: {1: "a", 2: "b"}}.
	want := digest.Of(digest.BLAKE3, []byte("\x0a\x06\x0a\x02ab\x10\x03"+"\x52\x08\x0a\x06\x0a\x01a\x12\x01b"))
	if got := digest.OfReduced(digest.BLAKE3, a); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestResultOf(t *testing.T) {
	pack := func(m proto.Message) *anypb.Any {
		packed, err := anypb.New(m)
		if err != nil {
			t.Fatal(err)
		}
		return packed
	}
	used := &actionstats.Resources{
		UserTime: durationpb.New(3 * time.Second), SystemTime: durationpb.New(time.Second),
		MemoryPeakBytes: 900, MemoryBeforeBytes: 200, MemoryLimitBytes: 1000, Cpus: 4, CpuQuota: 2,
		MemorySome: durationpb.New(3 * time.Second), MemoryFull: durationpb.New(time.Second),
		Throttled: durationpb.New(time.Second),
	}
	full := proto.CloneOf(used)
	full.MemoryPeakBytes, full.OutOfMemoryKills = 1000, 1
	posix := &resourceusage.POSIXResourceUsage{UserTime: durationpb.New(5 * time.Second)}
	meta := func(aux ...proto.Message) *repb.ExecutedActionMetadata {
		m := &repb.ExecutedActionMetadata{
			ExecutionStartTimestamp:     timestamppb.New(testTime),
			ExecutionCompletedTimestamp: timestamppb.New(testTime.Add(9 * time.Second)),
			VirtualExecutionDuration:    durationpb.New(7 * time.Second),
		}
		for _, a := range aux {
			m.AuxiliaryMetadata = append(m.AuxiliaryMetadata, pack(a))
		}
		return m
	}
	short := meta(posix)
	short.VirtualExecutionDuration = nil
	broken := meta(posix)
	broken.AuxiliaryMetadata[0].Value = []byte{0xff}
	all := Run{Duration: 7 * time.Second, CPU: 4 * time.Second, CPUs: 2, MemoryLimitBytes: 1000, PeakMemoryBytes: 700}
	all.MemoryStall, all.Throttled = 2*time.Second, time.Second
	dead := all
	dead.PeakMemoryBytes = 1000
	for name, c := range map[string]struct {
		code    codes.Code
		exit    int32
		meta    *repb.ExecutedActionMetadata
		want    Run
		outcome Outcome // 0: it says nothing
	}{
		"success":            {codes.OK, 0, meta(posix, used), all, Succeeded},
		"failure":            {codes.OK, 1, meta(used), all, Failed},
		"timeout":            {codes.DeadlineExceeded, 0, meta(used), all, TimedOut},
		"out of memory":      {codes.OK, 137, meta(full), dead, OutOfMemory},
		"another's worker":   {codes.OK, 0, short, Run{Duration: 9 * time.Second, CPU: 5 * time.Second}, Succeeded},
		"broken metadata":    {codes.OK, 0, broken, Run{Duration: 7 * time.Second}, Succeeded},
		"no metadata":        {codes.OK, 0, nil, Run{}, Succeeded},
		"missing input":      {codes.FailedPrecondition, 0, meta(used), Run{}, 0},
		"fault of a worker":  {codes.Internal, 1, meta(used), Run{}, 0},
		"neither one nor it": {codes.OK, -1, nil, Run{}, 0},
	} {
		resp := &repb.ExecuteResponse{
			Status: &spb.Status{Code: int32(c.code)},
			Result: &repb.ActionResult{ExitCode: c.exit, ExecutionMetadata: c.meta},
		}
		if c.exit < 0 {
			resp.Result = nil
		}
		r, outcome, ok := ResultOf(resp)
		if r != c.want || outcome != c.outcome || ok != (c.outcome > 0) {
			t.Errorf("%s: %+v, %s, %t, want %+v, %s", name, r, outcome, ok, c.want, c.outcome)
		}
	}
}

func TestPlacement(t *testing.T) {
	p := Choice{Class: 4, Timeout: time.Minute, Reason: "x"}.Placement(2)
	if p.GetSizeClass() != 4 || p.GetAttempt() != 2 || p.GetReason() != "x" ||
		p.GetTimeout().AsDuration() != time.Minute || p.GetExpectedDuration() != nil {
		t.Errorf("%v", p)
	}
}
