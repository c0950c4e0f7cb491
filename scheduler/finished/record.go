package finished

import (
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/history"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/runs"
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
	// maxEncoded is how large auxiliary data may be as the record has it: very many small pieces
	// are larger than what they say.
	maxEncoded = 12 << 10
)

// requestMetadataType is the type of data that the record already has.
const requestMetadataType = "type.googleapis.com/build.bazel.remote.execution.v2.RequestMetadata"

// The fields of a Record, a Stream and an Output (history.proto).
const (
	operationField protowire.Number = iota + 1
	instanceField
	functionField
	actionField
	invocationField
	correlatedField
	targetField
	mnemonicField
	configurationField
	userField
	clientField
	queuedField
	startedField
	endedField
	workerField
	sizeClassField
	sizeReasonField
	attemptsField
	outcomeField
	exitCodeField
	codeField
	errorField
	messageField
	stdoutField
	stderrField
	metadataField
	outputsField
	allOutputsField
	commandField
	argumentsField
	argumentsCutField

	streamDigestField protowire.Number = 1
	streamRawField    protowire.Number = 2

	outputPathField   protowire.Number = 1
	outputDigestField protowire.Number = 2
	outputKindField   protowire.Number = 3
)

// The fields of an ExecutedActionMetadata (REv2) after its timestamps, and of an Any.
const (
	auxiliaryField protowire.Number = 11
	virtualField   protowire.Number = 12

	typeField  protowire.Number = 1
	valueField protowire.Number = 2
)

// write begins the record of an operation that is done, and its row: all but the command.
func (d *draft) write(st *event.Status, note string) {
	resp, result := st.Response, st.Response.GetResult()
	w := &d.wire
	w.reset(history.FreeBytes)
	d.row = history.Row{Ended: st.Ended.UnixMilli(), Outcome: outcomeOf(st), IsRetried: st.Attempts > 1}
	texts := &d.row.Texts
	d.row.Operation = w.text(operationField, st.Name)
	texts[history.Instance] = w.text(instanceField, st.Instance)
	w.text(functionField, st.Digest.Function().String())
	d.row.Action = w.ownDigest(actionField, st.Digest)
	texts[history.Invocation] = w.text(invocationField, bounded.Text(st.Request.ToolInvocation, maxText))
	w.text(correlatedField, bounded.Text(st.Request.Correlated, maxText))
	texts[history.Target] = w.text(targetField, bounded.Text(st.Request.Target, maxText))
	texts[history.Mnemonic] = w.text(mnemonicField, bounded.Text(st.Request.Mnemonic, maxText))
	w.text(configurationField, bounded.Text(st.Request.Configuration, maxText))
	texts[history.User] = w.text(userField, st.User)
	w.text(clientField, st.Client)
	w.time(queuedField, st.Queued)
	if st.Worker != "" {
		w.time(startedField, st.Started)
		d.row.Took = st.Ended.Sub(st.Started)
	}
	w.time(endedField, st.Ended)
	texts[history.Worker] = w.text(workerField, st.Worker)
	if st.Queue != nil {
		w.number(sizeClassField, int64(st.Queue.SizeClass))
	}
	w.text(sizeReasonField, sizeReasonOf(st))
	w.number(attemptsField, int64(st.Attempts))
	w.number(outcomeField, int64(d.row.Outcome))
	w.number(exitCodeField, int64(result.GetExitCode()))
	w.number(codeField, int64(resp.GetStatus().GetCode()))
	w.text(errorField, bounded.Text(resp.GetStatus().GetMessage(), maxMessage))
	message := bounded.Text(resp.GetMessage(), maxMessage)
	if note != "" {
		message = strings.TrimPrefix(message+"\n"+note, "\n")
	}
	w.text(messageField, message)
	w.stream(stdoutField, result.GetStdoutRaw(), result.GetStdoutDigest())
	w.stream(stderrField, result.GetStderrRaw(), result.GetStderrDigest())
	w.metadata(metadataField, result.GetExecutionMetadata())
	w.outputs(result)
}

// sizeReasonOf returns the reason for the size class of the last run, which may be another one than
// was chosen at first.
func sizeReasonOf(st *event.Status) string {
	if st.Size.Reason == "" {
		return ""
	}
	for _, packed := range st.Response.GetResult().GetExecutionMetadata().GetAuxiliaryMetadata() {
		if placed := (&runs.Placement{}); packed.MessageIs(placed) && packed.UnmarshalTo(placed) == nil && placed.GetReason() != "" {
			return bounded.Text(placed.GetReason(), maxText)
		}
	}
	return st.Size.Reason
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

// metadata writes the worker's metadata without data that the record has itself.
func (w *wire) metadata(field protowire.Number, of *repb.ExecutedActionMetadata) {
	if of == nil {
		return
	}
	at := w.open(field)
	w.text(1, bounded.Text(of.GetWorker(), maxText))
	for i, t := range [...]*timestamppb.Timestamp{
		of.GetQueuedTimestamp(), of.GetWorkerStartTimestamp(), of.GetWorkerCompletedTimestamp(),
		of.GetInputFetchStartTimestamp(), of.GetInputFetchCompletedTimestamp(),
		of.GetExecutionStartTimestamp(), of.GetExecutionCompletedTimestamp(),
		of.GetOutputUploadStartTimestamp(), of.GetOutputUploadCompletedTimestamp(),
	} {
		w.timestamp(protowire.Number(i+2), t) // REv2 numbers them so
	}
	left, begin := maxAuxiliary, len(w.b)
	for _, packed := range of.GetAuxiliaryMetadata() {
		if left -= len(packed.GetTypeUrl()) + len(packed.GetValue()); packed.GetTypeUrl() == requestMetadataType || left < 0 {
			continue
		}
		before := len(w.b)
		any := w.open(auxiliaryField)
		w.text(typeField, packed.GetTypeUrl())
		w.bytes(valueField, packed.GetValue())
		if len(w.b)-begin > maxEncoded {
			w.b = w.b[:before]
			break
		}
		w.close(any)
	}
	if d := of.GetVirtualExecutionDuration(); d != nil {
		w.span(virtualField, d.GetSeconds(), d.GetNanos())
	}
	w.close(at)
}

// stream writes the output on a stream, if there was any.
func (w *wire) stream(field protowire.Number, raw []byte, d *repb.Digest) {
	hasDigest := d.GetSizeBytes() != 0
	if !hasDigest && len(raw) == 0 {
		return
	}
	at := w.open(field)
	if hasDigest {
		w.digest(streamDigestField, d)
	} else {
		w.bytes(streamRawField, raw[:min(len(raw), maxRaw)])
	}
	w.close(at)
}

// outputs lists the first outputs of an action.
func (w *wire) outputs(result *repb.ActionResult) {
	//lint:ignore SA1019 what workers for clients of API 2.0 send
	links := append(slices.Clip(result.GetOutputFileSymlinks()), result.GetOutputDirectorySymlinks()...)
	if len(links) == 0 {
		links = result.GetOutputSymlinks()
	}
	left := maxOutputs
	add := func(path string, d *repb.Digest, kind historypb.Output_Kind) {
		if left == 0 || len(path) > maxText {
			return
		}
		left--
		at := w.open(outputsField)
		w.text(outputPathField, path)
		w.digest(outputDigestField, d)
		w.number(outputKindField, int64(kind))
		w.close(at)
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
	w.number(allOutputsField, int64(len(result.GetOutputFiles())+len(result.GetOutputDirectories())+len(links)))
}
