package finished

import (
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/runs"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// written returns the record of an operation, without a command.
func written(t testing.TB, m *draft, st *event.Status) *historypb.Record {
	t.Helper()
	m.write(st, "")
	return decoded(t, m.wire.item())
}

func decoded(t testing.TB, item []byte) *historypb.Record {
	t.Helper()
	r := &historypb.Record{}
	if err := proto.Unmarshal(item[history.FreeBytes:], r); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestWholeRecord compares the record of an operation that has everything, and of one that has
// nothing, with what each field should be.
func TestWholeRecord(t *testing.T) {
	at := func(second int64) *timestamppb.Timestamp {
		return &timestamppb.Timestamp{Seconds: 1e9 + second, Nanos: int32(second)}
	}
	d := digest.Of(digest.SHA256, []byte("blob"))
	text := d.Hash() + "/4"
	metadata := &repb.ExecutedActionMetadata{
		Worker: "w", QueuedTimestamp: at(1), WorkerStartTimestamp: at(2), WorkerCompletedTimestamp: at(3),
		InputFetchStartTimestamp: at(4), InputFetchCompletedTimestamp: at(5), ExecutionStartTimestamp: at(6), ExecutionCompletedTimestamp: at(7),
		OutputUploadStartTimestamp: at(8), OutputUploadCompletedTimestamp: at(9), VirtualExecutionDuration: durationpb.New(1500 * time.Millisecond),
		AuxiliaryMetadata: []*anypb.Any{{TypeUrl: "a", Value: []byte("x")}, {TypeUrl: requestMetadataType, Value: []byte("y")}, {TypeUrl: "b"}},
	}
	st := &event.Status{
		Operation: &request.Operation{
			Name: "operations/1", Instance: "main", User: "alice", Client: "127.0.0.1", Digest: d, Size: request.Size{Reason: "explored"},
			Request: request.Metadata{ToolInvocation: "i", Correlated: "c", Target: "//a", Mnemonic: "M", Configuration: "k8"},
		},
		Queued: at(10).AsTime(), Started: at(11).AsTime(), Ended: at(12).AsTime(), Worker: `{"host":"w"}`, Attempts: 3,
		Queue: &event.QueueName{SizeClass: 8},
		Response: &repb.ExecuteResponse{
			Status: &spb.Status{Code: 2, Message: "why"}, Message: "no \xff text",
			Result: &repb.ActionResult{
				ExitCode: -1, StdoutRaw: []byte("out"), StderrRaw: []byte("raw"), StderrDigest: d.Proto(), ExecutionMetadata: metadata,
				OutputFiles:       []*repb.OutputFile{{Path: "f", Digest: d.Proto()}, {Path: "x", Digest: d.Proto(), IsExecutable: true}},
				OutputDirectories: []*repb.OutputDirectory{{Path: "d", TreeDigest: d.Proto()}}, OutputSymlinks: []*repb.OutputSymlink{{Path: "l"}},
			},
		},
	}
	kept := proto.Clone(metadata).(*repb.ExecutedActionMetadata)
	kept.AuxiliaryMetadata = []*anypb.Any{metadata.AuxiliaryMetadata[0], metadata.AuxiliaryMetadata[2]}
	want := &historypb.Record{
		Operation: "operations/1", InstanceName: "main", DigestFunction: "sha256", Action: text, Invocation: "i", Correlated: "c", Target: "//a",
		Mnemonic: "M", Configuration: "k8", User: "alice", Client: "127.0.0.1", Queued: at(10), Started: at(11), Ended: at(12),
		Worker: `{"host":"w"}`, SizeClass: 8, SizeReason: "explored", Attempts: 3, Outcome: historypb.Outcome_ERROR, ExitCode: -1, Code: 2,
		Error: "why", Message: "no \ufffd text\nnote", Stdout: &historypb.Stream{Raw: []byte("out")}, Stderr: &historypb.Stream{Digest: text},
		Metadata: kept, AllOutputs: 4, Command: text, Arguments: []string{"a", ""}, ArgumentsCut: true,
		Outputs: []*historypb.Output{
			{Path: "f", Digest: text},
			{Path: "x", Digest: text, Kind: historypb.Output_EXECUTABLE},
			{Path: "d", Digest: text, Kind: historypb.Output_FOLDER},
			{Path: "l", Kind: historypb.Output_LINK},
		},
	}
	m := &draft{}
	m.write(st, "note")
	m.wire.digest(commandField, d.Proto())
	m.wire.arguments(command(t, "a", "", "long"), 5)
	got := decoded(t, m.wire.item())
	if !proto.Equal(got, want) {
		t.Errorf("the record is\n%v, want\n%v", got, want)
	}
	all := got.ProtoReflect().Descriptor().Fields()
	for i := range all.Len() {
		if f := all.Get(i); !got.ProtoReflect().Has(f) && f.Name() != "build" {
			t.Errorf("nothing here sets %s", f.Name())
		}
	}
	st = &event.Status{Operation: &request.Operation{}, Response: &repb.ExecuteResponse{}, Queued: at(10).AsTime(), Ended: at(12).AsTime()}
	got = written(t, m, st)
	want = &historypb.Record{
		DigestFunction: got.GetDigestFunction(), Action: digest.Digest{}.String(), Queued: at(10), Ended: at(12), Outcome: historypb.Outcome_SUCCEEDED,
	}
	if !proto.Equal(got, want) {
		t.Errorf("the record of nothing is\n%v, want\n%v", got, want)
	}
}

// command returns an encoded Command.
func command(t testing.TB, arguments ...string) []byte {
	t.Helper()
	b, err := proto.Marshal(&repb.Command{
		Arguments: arguments, EnvironmentVariables: []*repb.Command_EnvironmentVariable{{Name: "PATH", Value: "/bin"}}, WorkingDirectory: "w",
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestLargeRecord makes a record of texts that are all as large as possible, and one with a message
// that cannot be encoded, which is lost.
func TestLargeRecord(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	result := &repb.ActionResult{StdoutRaw: []byte(long), StderrRaw: []byte(long), ExecutionMetadata: &repb.ExecutedActionMetadata{Worker: long}}
	for range maxOutputs + 1 {
		result.OutputFiles = append(result.OutputFiles, &repb.OutputFile{Path: long[:maxText]})
	}
	for range 3 {
		result.ExecutionMetadata.AuxiliaryMetadata = append(result.ExecutionMetadata.AuxiliaryMetadata, &anypb.Any{TypeUrl: "a", Value: []byte(long[:maxAuxiliary/2-1])})
	}
	st := done("large", &repb.ExecuteResponse{Message: long, Result: result})
	st.Request.Target, st.Request.Mnemonic, st.Request.Configuration = long, long, long
	m := &draft{}
	got := written(t, m, st)
	if len(got.GetStdout().GetRaw()) != maxRaw || len(got.GetOutputs()) != maxOutputs || got.GetAllOutputs() != maxOutputs+1 ||
		len(got.GetMetadata().GetAuxiliaryMetadata()) != 2 || !strings.HasSuffix(got.GetTarget(), "…") {
		t.Errorf("the record has %d bytes of output, %d of %d outputs, %d data of the worker, and the target %.10q…", len(got.GetStdout().GetRaw()),
			len(got.GetOutputs()), got.GetAllOutputs(), len(got.GetMetadata().GetAuxiliaryMetadata()), got.GetTarget())
	}
	m.wire.reset(history.FreeBytes)
	for _, n := range []int{maxNested, maxNested + 1} {
		at := m.wire.open(errorField)
		m.wire.b = append(m.wire.b, long[:n]...)
		m.wire.close(at)
		if isLost := m.wire.item() == nil; isLost != (n > maxNested) {
			t.Errorf("with a message of %d bytes the record is lost: %v", n, isLost)
		} else if !isLost && decoded(t, m.wire.item()).GetError() != long[:n] {
			t.Errorf("a text of %d bytes is different", n)
		}
	}
}

// TestRecordIsKept makes records of what only a broken or hostile worker or client sends: each can
// be read, and what is right in it is there.
func TestRecordIsKept(t *testing.T) {
	const noText = "a\xff"
	small := make([]*anypb.Any, 9000)
	for i := range small {
		small[i] = &anypb.Any{TypeUrl: "a"}
	}
	for name, result := range map[string]*repb.ActionResult{
		"many small data": {ExecutionMetadata: &repb.ExecutedActionMetadata{AuxiliaryMetadata: small}},
		"many empty data": {ExecutionMetadata: &repb.ExecutedActionMetadata{AuxiliaryMetadata: make([]*anypb.Any, 9000)}},
		"a type that is no text": {ExecutionMetadata: &repb.ExecutedActionMetadata{
			AuxiliaryMetadata: []*anypb.Any{{TypeUrl: strings.Repeat(noText, maxAuxiliary/2)}},
		}},
		"a long hash": {
			StdoutDigest: &repb.Digest{Hash: strings.Repeat("x", 1<<20), SizeBytes: 1},
			OutputFiles:  []*repb.OutputFile{{Path: "f", Digest: &repb.Digest{Hash: strings.Repeat("x", 1<<20)}}},
		},
		"a hash that is no text": {
			StdoutDigest: &repb.Digest{Hash: noText, SizeBytes: 1},
			OutputFiles:  []*repb.OutputFile{{Path: "f", Digest: &repb.Digest{Hash: noText}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			st := done("strange", &repb.ExecuteResponse{Result: result})
			result.ExitCode = 7
			m := &draft{}
			m.write(st, "")
			if m.wire.item() == nil {
				t.Fatal("the record is lost")
			}
			got := decoded(t, m.wire.item())
			if got.GetOperation() != "operations/strange" || got.GetExitCode() != 7 || int(got.GetAllOutputs()) != len(result.GetOutputFiles()) {
				t.Errorf("the record is %v", got)
			}
		})
	}
}

// TestArgumentsNeedRoom: a command does not make a record too large. An argument takes more than
// its bytes.
func TestArgumentsNeedRoom(t *testing.T) {
	long := strings.Repeat("x", maxRaw)
	result := &repb.ActionResult{StdoutRaw: []byte(long), StderrRaw: []byte(long)}
	for range maxOutputs {
		result.OutputFiles = append(result.OutputFiles, &repb.OutputFile{Path: long[:maxText], Digest: digest.Of(digest.SHA256, nil).Proto()})
	}
	st := done("large", &repb.ExecuteResponse{Result: result})
	st.Request.Target, st.Request.Mnemonic, st.Request.Configuration, st.Request.Correlated = long, long, long, long
	m := &draft{}
	m.write(st, "")
	m.wire.arguments(command(t, make([]string, maxArguments)...), maxArguments)
	item := m.wire.item()
	got := decoded(t, item)
	if len(item) > history.MaxRecordBytes || len(got.GetArguments()) == 0 || !got.GetArgumentsCut() {
		t.Errorf("the record has %d bytes and %d arguments, cut: %t", len(item), len(got.GetArguments()), got.GetArgumentsCut())
	}
}

// TestRowIsOfRecord: the index has the texts that the record has, also those that were no text.
func TestRowIsOfRecord(t *testing.T) {
	st := done("row\xff", &repb.ExecuteResponse{})
	st.Instance, st.User, st.Worker = "instance\xff", "user\xff", "worker\xff"
	st.Request = request.Metadata{ToolInvocation: "invocation\xff", Target: "target\xff", Mnemonic: "mnemonic\xff"}
	m := &draft{}
	got := written(t, m, st)
	want := m.row.Texts
	want[history.Instance], want[history.User], want[history.Worker] = got.GetInstanceName(), got.GetUser(), got.GetWorker()
	want[history.Invocation], want[history.Target], want[history.Mnemonic] = got.GetInvocation(), got.GetTarget(), got.GetMnemonic()
	if m.row.Texts != want || m.row.Operation != got.GetOperation() {
		t.Errorf("the row has %q and %q, the record %q and %q", m.row.Operation, m.row.Texts, got.GetOperation(), want)
	}
}

// TestArguments reads the command lines of Commands.
func TestArguments(t *testing.T) {
	whole := command(t, "a", "", "bc")
	for name, test := range map[string]struct {
		command []byte
		want    string
		cut     bool
	}{
		"whole": {command: whole, want: "a||bc"}, "nothing": {}, "none": {command: command(t)},
		"long":      {command: command(t, "a", strings.Repeat("x", 20), "b"), want: "a", cut: true},
		"truncated": {command: whole[:len(whole)-1]}, "no text": {command: []byte("\x0a\x01\xff")}, "no message": {command: []byte("hello")},
	} {
		var w wire
		w.reset(history.FreeBytes)
		w.text(operationField, "before")
		w.arguments(test.command, 20)
		got := decoded(t, w.item())
		if strings.Join(got.GetArguments(), "|") != test.want || got.GetArgumentsCut() != test.cut || got.GetOperation() != "before" {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestSizeReason: an action that failed on a small worker runs again on a large one, whose record says
// why it ran there.
func TestSizeReason(t *testing.T) {
	packed, err := anypb.New(&runs.Placement{SizeClass: 4, Attempt: 2, Reason: "failed with exit code 9 on size class 1"})
	if err != nil {
		t.Fatal(err)
	}
	st := &event.Status{
		Operation: &request.Operation{Name: "operations/1", Size: request.Size{Class: 1, Reason: "drawn: acceptable"}},
		Queue:     &event.QueueName{SizeClass: 4},
		Response: &repb.ExecuteResponse{Result: &repb.ActionResult{ExecutionMetadata: &repb.ExecutedActionMetadata{
			AuxiliaryMetadata: []*anypb.Any{packed},
		}}},
	}
	if got := written(t, &draft{}, st).GetSizeReason(); got != "failed with exit code 9 on size class 1" {
		t.Errorf("the reason is %q", got)
	}
	st.Response.Result.ExecutionMetadata.AuxiliaryMetadata = nil // as of other workers
	if got := written(t, &draft{}, st).GetSizeReason(); got != "drawn: acceptable" {
		t.Errorf("without a report the reason is %q", got)
	}
}
