package finished

import (
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/bounded"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/sizeclass"
)

// The limits of client and worker data in a record, in bytes; maxOutputs is how many are listed.
const (
	maxText      = 1 << 10
	maxMessage   = 4 << 10
	maxArguments = 8 << 10
	maxRaw       = 8 << 10
	maxAuxiliary = 8 << 10
	maxOutputs   = 20
)

// requestMetadataType is the type of data that the record already has.
const requestMetadataType = "type.googleapis.com/build.bazel.remote.execution.v2.RequestMetadata"

// recordOf makes the record of an operation that is done. It is valid until the next call.
func (m *maker) recordOf(st *event.Status) *historypb.Record {
	resp, result := st.Response, st.Response.GetResult()
	r, outputs := &m.record, m.record.Outputs[:0]
	r.Reset()
	r.Operation, r.InstanceName = st.Name, st.Instance
	r.DigestFunction, r.Action = st.Digest.Function().String(), st.Digest.String()
	r.Invocation, r.Correlated = bounded.Text(st.Request.ToolInvocation, maxText), bounded.Text(st.Request.Correlated, maxText)
	r.Target, r.Mnemonic = bounded.Text(st.Request.Target, maxText), bounded.Text(st.Request.Mnemonic, maxText)
	r.Configuration, r.User, r.Client = bounded.Text(st.Request.Configuration, maxText), st.User, st.Client
	r.Queued, r.Ended = timeIn(&m.queued, st.Queued), timeIn(&m.ended, st.Ended)
	r.Worker, r.Attempts, r.SizeReason = st.Worker, int32(st.Attempts), st.Size.Reason
	r.Outcome, r.ExitCode, r.Code = outcomeOf(st), result.GetExitCode(), resp.GetStatus().GetCode()
	r.Error, r.Message = bounded.Text(resp.GetStatus().GetMessage(), maxMessage), bounded.Text(resp.GetMessage(), maxMessage)
	r.Stdout = m.streamIn(&m.stdout, result.GetStdoutRaw(), result.GetStdoutDigest())
	r.Stderr = m.streamIn(&m.stderr, result.GetStderrRaw(), result.GetStderrDigest())
	r.Metadata = m.metadataOf(result.GetExecutionMetadata())
	if st.Worker != "" {
		r.Started = timeIn(&m.started, st.Started)
	}
	if st.Queue != nil {
		r.SizeClass = st.Queue.SizeClass
	}
	r.Outputs = outputs
	m.addOutputs(result)
	return r
}

// timeIn writes a time to a message.
func timeIn(m *timestamppb.Timestamp, t time.Time) *timestamppb.Timestamp {
	m.Seconds, m.Nanos = t.Unix(), int32(t.Nanosecond())
	return m
}

// outcomeOf returns how an operation ended.
func outcomeOf(st *event.Status) historypb.Outcome {
	code, result := codes.Code(st.Response.GetStatus().GetCode()), st.Response.GetResult()
	switch {
	case st.Response.GetCachedResult():
		return historypb.Outcome_CACHED
	case code == codes.Canceled:
		return historypb.Outcome_CANCELLED
	case code == codes.DeadlineExceeded:
		return historypb.Outcome_TIMED_OUT
	case code != codes.OK:
		return historypb.Outcome_ERROR
	case result.GetExitCode() == 0:
		return historypb.Outcome_SUCCEEDED
	}
	if _, outcome, _ := sizeclass.ResultOf(st.Response); outcome == sizeclass.OutOfMemory {
		return historypb.Outcome_OUT_OF_MEMORY
	}
	return historypb.Outcome_FAILED
}

// metadataOf returns the worker's metadata without data that the record has itself.
func (m *maker) metadataOf(of *repb.ExecutedActionMetadata) *repb.ExecutedActionMetadata {
	if of == nil {
		return nil
	}
	kept, auxiliary := &m.metadata, m.metadata.AuxiliaryMetadata[:0]
	kept.Worker, kept.QueuedTimestamp = bounded.Text(of.GetWorker(), maxText), of.GetQueuedTimestamp()
	kept.WorkerStartTimestamp, kept.WorkerCompletedTimestamp = of.GetWorkerStartTimestamp(), of.GetWorkerCompletedTimestamp()
	kept.InputFetchStartTimestamp, kept.InputFetchCompletedTimestamp = of.GetInputFetchStartTimestamp(), of.GetInputFetchCompletedTimestamp()
	kept.ExecutionStartTimestamp, kept.ExecutionCompletedTimestamp = of.GetExecutionStartTimestamp(), of.GetExecutionCompletedTimestamp()
	kept.OutputUploadStartTimestamp, kept.OutputUploadCompletedTimestamp = of.GetOutputUploadStartTimestamp(), of.GetOutputUploadCompletedTimestamp()
	kept.VirtualExecutionDuration = of.GetVirtualExecutionDuration()
	room := maxAuxiliary
	for _, packed := range of.GetAuxiliaryMetadata() {
		if room -= proto.Size(packed); packed.GetTypeUrl() != requestMetadataType && room >= 0 {
			auxiliary = append(auxiliary, packed)
		}
	}
	kept.AuxiliaryMetadata = auxiliary
	return kept
}

// streamIn writes the output on a stream to a message; nil: there was none.
func (m *maker) streamIn(s *historypb.Stream, raw []byte, d *repb.Digest) *historypb.Stream {
	s.Digest, s.Raw = m.digests.text(d), nil
	if s.Digest == "" || d.GetSizeBytes() == 0 {
		s.Digest, s.Raw = "", raw[:min(len(raw), maxRaw)]
	}
	if s.Digest == "" && len(s.Raw) == 0 {
		return nil
	}
	return s
}

// addOutputs lists the first outputs of an action.
func (m *maker) addOutputs(result *repb.ActionResult) {
	r := &m.record
	//lint:ignore SA1019 what workers for clients of API 2.0 send
	links := append(result.GetOutputFileSymlinks(), result.GetOutputDirectorySymlinks()...)
	if len(links) == 0 {
		links = result.GetOutputSymlinks()
	}
	r.AllOutputs = int32(len(result.GetOutputFiles()) + len(result.GetOutputDirectories()) + len(links))
	add := func(path string, d *repb.Digest, kind historypb.Output_Kind) {
		if n := len(r.Outputs); n < maxOutputs && len(path) <= maxText {
			o := &m.outputs[n]
			o.Path, o.Digest, o.Kind = path, m.digests.text(d), kind
			r.Outputs = append(r.Outputs, o)
		}
	}
	for _, f := range result.GetOutputFiles() {
		kind := historypb.Output_FILE
		if f.GetIsExecutable() {
			kind = historypb.Output_EXECUTABLE
		}
		add(f.GetPath(), f.GetDigest(), kind)
	}
	for _, d := range result.GetOutputDirectories() {
		add(d.GetPath(), d.GetTreeDigest(), historypb.Output_FOLDER)
	}
	for _, l := range links {
		add(l.GetPath(), nil, historypb.Output_LINK)
	}
}
