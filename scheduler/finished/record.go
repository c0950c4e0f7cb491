package finished

import (
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
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

// recordOf makes the record of an operation that is done.
func recordOf(st *event.Status) *historypb.Record {
	resp, result := st.Response, st.Response.GetResult()
	m := &historypb.Record{
		Operation: st.Name, InstanceName: st.Instance, DigestFunction: st.Digest.Function().String(), Action: st.Digest.String(),
		Invocation: bounded.Text(st.Request.ToolInvocation, maxText), Correlated: bounded.Text(st.Request.Correlated, maxText),
		Target: bounded.Text(st.Request.Target, maxText), Mnemonic: bounded.Text(st.Request.Mnemonic, maxText),
		Configuration: bounded.Text(st.Request.Configuration, maxText), User: st.User, Client: st.Client,
		Queued: timestamppb.New(st.Queued), Ended: timestamppb.New(st.Ended),
		Worker: st.Worker, Attempts: int32(st.Attempts), SizeReason: st.Size.Reason,
		Outcome: outcomeOf(st), ExitCode: result.GetExitCode(),
		Code: resp.GetStatus().GetCode(), Error: bounded.Text(resp.GetStatus().GetMessage(), maxMessage), Message: bounded.Text(resp.GetMessage(), maxMessage),
		Stdout:   streamOf(result.GetStdoutRaw(), result.GetStdoutDigest()),
		Stderr:   streamOf(result.GetStderrRaw(), result.GetStderrDigest()),
		Metadata: metadataOf(result.GetExecutionMetadata()),
	}
	if st.Worker != "" {
		m.Started = timestamppb.New(st.Started)
	}
	if st.Queue != nil {
		m.SizeClass = st.Queue.SizeClass
	}
	addOutputs(m, result)
	return m
}

// outcomeOf returns how an operation ended.
func outcomeOf(st *event.Status) historypb.Outcome {
	code, result := codes.Code(st.Response.GetStatus().GetCode()), st.Response.GetResult()
	_, outcome, _ := sizeclass.ResultOf(st.Response)
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
	case outcome == sizeclass.OutOfMemory:
		return historypb.Outcome_OUT_OF_MEMORY
	}
	return historypb.Outcome_FAILED
}

// metadataOf returns the worker's metadata without data that the record has itself.
func metadataOf(m *repb.ExecutedActionMetadata) *repb.ExecutedActionMetadata {
	if m == nil {
		return nil
	}
	kept := &repb.ExecutedActionMetadata{
		Worker: bounded.Text(m.GetWorker(), maxText), QueuedTimestamp: m.GetQueuedTimestamp(), WorkerStartTimestamp: m.GetWorkerStartTimestamp(),
		WorkerCompletedTimestamp: m.GetWorkerCompletedTimestamp(), InputFetchStartTimestamp: m.GetInputFetchStartTimestamp(),
		InputFetchCompletedTimestamp: m.GetInputFetchCompletedTimestamp(), ExecutionStartTimestamp: m.GetExecutionStartTimestamp(),
		ExecutionCompletedTimestamp: m.GetExecutionCompletedTimestamp(), VirtualExecutionDuration: m.GetVirtualExecutionDuration(),
		OutputUploadStartTimestamp: m.GetOutputUploadStartTimestamp(), OutputUploadCompletedTimestamp: m.GetOutputUploadCompletedTimestamp(),
	}
	room := maxAuxiliary
	for _, packed := range m.GetAuxiliaryMetadata() {
		if room -= len(packed.GetValue()); packed.GetTypeUrl() != requestMetadataType && room >= 0 {
			kept.AuxiliaryMetadata = append(kept.AuxiliaryMetadata, &anypb.Any{TypeUrl: packed.GetTypeUrl(), Value: packed.GetValue()})
		}
	}
	return kept
}

func streamOf(raw []byte, d *repb.Digest) *historypb.Stream {
	s := &historypb.Stream{Digest: digest.Text(d)}
	if s.Digest == "" || d.GetSizeBytes() == 0 {
		s.Digest, s.Raw = "", raw[:min(len(raw), maxRaw)]
	}
	if s.Digest == "" && len(s.Raw) == 0 {
		return nil
	}
	return s
}

// addOutputs lists the first outputs of an action.
func addOutputs(m *historypb.Record, result *repb.ActionResult) {
	//lint:ignore SA1019 what workers for clients of API 2.0 send
	links := append(result.GetOutputFileSymlinks(), result.GetOutputDirectorySymlinks()...)
	if len(links) == 0 {
		links = result.GetOutputSymlinks()
	}
	m.AllOutputs = int32(len(result.GetOutputFiles()) + len(result.GetOutputDirectories()) + len(links))
	add := func(path string, d *repb.Digest, kind historypb.Output_Kind) {
		if len(m.Outputs) < maxOutputs && len(path) <= maxText {
			m.Outputs = append(m.Outputs, &historypb.Output{Path: path, Digest: digest.Text(d), Kind: kind})
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

// cut returns the first arguments, of at most so many bytes.
func cut(args []string, most int) (first []string, wasCut bool) {
	for i, a := range args {
		if most -= len(a) + 1; most < 0 {
			return args[:i], true
		}
	}
	return args, false
}
