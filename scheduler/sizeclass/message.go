package sizeclass

import (
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
	"github.com/forerunner-build/forerunner/proto/runs"
)

// ResultOf returns the result of the run in a worker's response. It is false if the end is
// unrelated to the size class, such as a missing input or a fault of the worker.
func ResultOf(resp *repb.ExecuteResponse) (Run, Outcome, bool) {
	meta := resp.GetResult().GetExecutionMetadata()
	r := Run{Duration: durationOf(meta)}
	var used resourceusage.POSIXResourceUsage
	var ours actionstats.Resources
	for _, packed := range meta.GetAuxiliaryMetadata() {
		switch {
		case packed.MessageIs(&ours):
			_ = packed.UnmarshalTo(&ours) // it has less data then
		case packed.MessageIs(&used):
			_ = packed.UnmarshalTo(&used)
		}
	}
	r.CPU = ours.GetUserTime().AsDuration() + ours.GetSystemTime().AsDuration()
	if r.CPU == 0 {
		r.CPU = used.GetUserTime().AsDuration() + used.GetSystemTime().AsDuration()
	}
	r.CPUs = float64(ours.GetCpus())
	if quota := ours.GetCpuQuota(); quota > 0 && (r.CPUs == 0 || quota < r.CPUs) {
		r.CPUs = quota
	}
	r.MemoryLimitBytes, r.PeakMemoryBytes = ours.GetMemoryLimitBytes(), ours.GetMemoryPeakBytes()
	if float64(r.PeakMemoryBytes) < memoryFull*float64(r.MemoryLimitBytes) {
		r.PeakMemoryBytes -= ours.GetMemoryBeforeBytes() // files that actions before it left
	}
	r.MemoryStall = (ours.GetMemorySome().AsDuration() + ours.GetMemoryFull().AsDuration()) / 2
	r.Throttled = ours.GetThrottled().AsDuration()
	code := codes.Code(resp.GetStatus().GetCode())
	switch exit := resp.GetResult().GetExitCode(); {
	case resp.GetResult() == nil && code == codes.OK:
		return Run{}, 0, false
	case ours.GetOutOfMemoryKills() > 0 && (code == codes.OK || code == codes.DeadlineExceeded):
		return r.sane(), OutOfMemory, true
	case code == codes.DeadlineExceeded:
		return r.sane(), TimedOut, true
	case code == codes.OK && exit == 0:
		return r.sane(), Succeeded, true
	case code == codes.OK:
		return r.sane(), Failed, true
	}
	return Run{}, 0, false
}

// durationOf is the execution time minus waits for storage, if the worker reports them.
func durationOf(m *repb.ExecutedActionMetadata) time.Duration {
	if d := m.GetVirtualExecutionDuration(); d != nil {
		return d.AsDuration()
	}
	start, end := m.GetExecutionStartTimestamp(), m.GetExecutionCompletedTimestamp()
	if start == nil || end == nil {
		return 0
	}
	return end.AsTime().Sub(start.AsTime())
}

// Placement returns c as a message for the metadata of the result. attempt is 1 for the first run.
func (c Choice) Placement(attempt int) *runs.Placement {
	m := &runs.Placement{
		SizeClass: c.Class, Timeout: durationpb.New(c.Timeout), Attempt: uint32(attempt), Reason: c.Reason,
	}
	if c.Expected > 0 {
		m.ExpectedDuration = durationpb.New(c.Expected)
	}
	return m
}
