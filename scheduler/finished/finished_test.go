package finished

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	spb "google.golang.org/genproto/googleapis/rpc/status"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/operation"
)

type blobs map[digest.Digest][]byte

func (b blobs) Read(_ context.Context, d digest.Digest) ([]byte, error) {
	if blob, ok := b[d]; ok {
		return blob, nil
	}
	return nil, digest.ErrNotFound
}

// done is an operation with a response.
func done(name string, resp *repb.ExecuteResponse) *event.Status {
	now := time.Now()
	return &event.Status{
		Operation: &request.Operation{
			Name: "operations/" + name, Instance: "main", User: "alice", Digest: digest.Of(digest.SHA256, []byte(name)), Action: &repb.Action{},
			Request: request.Metadata{Target: "//a:" + name, Mnemonic: "Genrule", ToolInvocation: "build 1"},
			Owner:   &operation.Extras{Sent: &operation.Sent{}},
		},
		Stage: repb.ExecutionStage_COMPLETED, Queued: now.Add(-2 * time.Second), Started: now.Add(-time.Second), Ended: now,
		Worker: `{"host":"w"}`, Attempts: 2, Queue: &event.QueueName{SizeClass: 4}, Response: resp,
	}
}

func exit(code int32, auxiliary ...*anypb.Any) *repb.ExecuteResponse {
	return &repb.ExecuteResponse{Result: &repb.ActionResult{
		ExitCode: code, StderrRaw: []byte("no such file"), ExecutionMetadata: &repb.ExecutedActionMetadata{AuxiliaryMetadata: auxiliary},
	}}
}

func TestOutcomes(t *testing.T) {
	killed, err := anypb.New(&actionstats.Resources{OutOfMemoryKills: 1})
	if err != nil {
		t.Fatal(err)
	}
	failure := func(c codes.Code) *repb.ExecuteResponse {
		return &repb.ExecuteResponse{Status: &spb.Status{Code: int32(c), Message: "why"}}
	}
	for want, resp := range map[historypb.Outcome]*repb.ExecuteResponse{
		historypb.Outcome_SUCCEEDED: exit(0, killed), historypb.Outcome_FAILED: exit(1), historypb.Outcome_OUT_OF_MEMORY: exit(137, killed),
		historypb.Outcome_CANCELLED: failure(codes.Canceled), historypb.Outcome_TIMED_OUT: failure(codes.DeadlineExceeded),
		historypb.Outcome_ERROR: failure(codes.Unavailable), historypb.Outcome_CACHED: {Result: &repb.ActionResult{}, CachedResult: true},
	} {
		if got := outcomeOf(done("x", resp)); got != want {
			t.Errorf("%v is %s, want %s", resp, got, want)
		}
	}
}

// TestRecords makes records and finds them.
func TestRecords(t *testing.T) {
	store, err := history.Open("", history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := proto.Marshal(&repb.Command{Arguments: []string{"cc", "-c", strings.Repeat("x", maxArguments)}})
	if err != nil {
		t.Fatal(err)
	}
	command := digest.Of(digest.SHA256, encoded)
	r := New(Options{Store: store, Blobs: func(string, digest.Function) Blobs { return blobs{command: encoded} }})
	failed := done("failed", exit(1))
	failed.Action.CommandDigest = command.Proto()
	r.Add(failed, "the timeout was cut")
	r.Add(done("large", &repb.ExecuteResponse{
		Message: strings.Repeat("x", 1<<20), Result: &repb.ActionResult{StdoutRaw: make([]byte, 1<<20), OutputFiles: make([]*repb.OutputFile, 10_000)},
	}), "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Run(ctx) // makes what waits
	a := Admin{r}
	got, err := a.GetRecord(t.Context(), &admin.GetRecordRequest{Of: &admin.GetRecordRequest_Operation{Operation: "operations/failed"}})
	if err != nil {
		t.Fatal(err)
	}
	if got.GetMessage() != "the timeout was cut" || got.GetExitCode() != 1 || got.GetSizeClass() != 4 || got.GetAttempts() != 2 ||
		string(got.GetStderr().GetRaw()) != "no such file" || got.GetCommand() != command.String() || got.GetTarget() != "//a:failed" {
		t.Errorf("the record is %v", got)
	}
	large, err := a.GetRecord(t.Context(), &admin.GetRecordRequest{Of: &admin.GetRecordRequest_Action{Action: digest.Of(digest.SHA256, []byte("large")).String()}})
	if err != nil || proto.Size(large) > 16<<10 || large.GetAllOutputs() != 10_000 {
		t.Errorf("a large one has %d bytes: %v", proto.Size(large), err)
	}
	for pattern, want := range map[string]int{"target=//a:*": 2, "user=bob": 0, "mnemonic=Genrule,worker=*w*": 2, "operation=operations/failed": 1} {
		m := map[string]string{}
		for part := range strings.SplitSeq(pattern, ",") {
			name, value, _ := strings.Cut(part, "=")
			m[name] = value
		}
		list, err := a.ListRecords(t.Context(), &admin.ListRecordsRequest{Pattern: &admin.Pattern{Attributes: m}})
		if err != nil || len(list.GetRecords()) != want {
			t.Errorf("%s: %d records, want %d: %v", pattern, len(list.GetRecords()), want, err)
		}
	}
	_, err = a.ListRecords(t.Context(), &admin.ListRecordsRequest{Pattern: &admin.Pattern{Attributes: map[string]string{"traget": "x"}}})
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "traget") {
		t.Errorf("a name that there is not: %v", err)
	}
	if _, err := (Admin{}).GetRecord(t.Context(), &admin.GetRecordRequest{Of: &admin.GetRecordRequest_Operation{Operation: "x"}}); status.Code(err) != codes.NotFound {
		t.Errorf("without records: %v", err)
	}
}

// TestSentCommands: the command of an operation that a worker got with its action is not read once
// more, and is that of no other operation.
func TestSentCommands(t *testing.T) {
	store, err := history.Open("", history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := proto.Marshal(&repb.Command{Arguments: []string{"cc", "-c"}})
	if err != nil {
		t.Fatal(err)
	}
	command, reads := digest.Of(digest.SHA256, encoded), 0
	r := New(Options{Store: store, Blobs: func(string, digest.Function) Blobs {
		reads++
		return blobs{}
	}})
	sent, other := done("sent", exit(0)), done("other", exit(0))
	sent.Action.CommandDigest, other.Action.CommandDigest = command.Proto(), command.Proto()
	r.Sent(sent.Operation, encoded)
	r.Add(sent, "")
	r.Add(other, "")
	m := newReader(r)
	defer m.close()
	m.readAll(t.Context())
	store.Flush()
	if found, _, err := store.Find(t.Context(), history.Query{Text: "cc -c", Limit: 9}); err != nil || len(found) != 0 {
		t.Errorf("by the command of an operation that has a target %d are found, %v", len(found), err)
	}
	for name, want := range map[string]string{sent.Name: "cc -c", other.Name: ""} {
		got, err := Admin{r}.GetRecord(t.Context(), &admin.GetRecordRequest{Of: &admin.GetRecordRequest_Operation{Operation: name}})
		if err != nil || strings.Join(got.GetArguments(), " ") != want || got.GetCommand() != command.String() {
			t.Errorf("%s: %v, %v, want the arguments %q", name, got, err, want)
		}
	}
	if reads != 1 {
		t.Errorf("%d reads, want that of the other one", reads)
	}
}

// TestOneRecord looks for one that is among the last: older ones, whose index is damaged here, are
// not looked at.
func TestOneRecord(t *testing.T) {
	folder := t.TempDir()
	seen, logs := observer.New(zap.WarnLevel)
	store, err := history.Open(folder, history.Options{Keep: 14 * time.Second, Logger: zap.New(seen)}) // a segment is one second
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	r := New(Options{Store: store})
	old, last := done("same", exit(1)), done("same", exit(0))
	old.Name, old.Ended = "operations/old", last.Ended.Add(-5*time.Second)
	m := newReader(r)
	defer m.close()
	r.Add(old, "")
	r.Add(last, "")
	m.readAll(t.Context())
	store.Flush()
	if err := os.Truncate(filepath.Join(folder, "00000001.index"), 1); err != nil {
		t.Fatal(err)
	}
	a := Admin{r}
	for _, req := range []*admin.GetRecordRequest{
		{Of: &admin.GetRecordRequest_Operation{Operation: last.Name}}, {Of: &admin.GetRecordRequest_Action{Action: last.Digest.String()}},
	} {
		if got, err := a.GetRecord(t.Context(), req); err != nil || got.GetOperation() != last.Name {
			t.Errorf("%v is %v: %v", req, got, err)
		}
	}
	for _, e := range logs.All() {
		t.Errorf("an old segment was searched: %s %v", e.Message, e.ContextMap())
	}
}

// A slowBlobs is a storage that answers when the test lets it.
type slowBlobs struct {
	blobs
	may chan struct{}
}

func (b slowBlobs) Read(ctx context.Context, d digest.Digest) ([]byte, error) {
	select {
	case <-b.may:
		return b.blobs.Read(ctx, d)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TestSlowStorage: where the storage of commands does not answer, more operations end than may wait
// for their command lines. All have records, and those that were added first have command lines.
func TestSlowStorage(t *testing.T) {
	for name, c := range map[string]struct {
		memory      int64
		ends        *repb.ExecuteResponse
		least, most int // that may wait
	}{
		"failures":                   {0, exit(1), maxWaiting, maxWaiting},
		"successes":                  {0, exit(0), maxWaiting / usualParts, maxWaiting / usualParts},
		"with little memory":         {1 << 20 * waitingParts, exit(1), 1 << 20 / (4<<10 + draftBytes), 1 << 20 / draftBytes},
		"with no memory for a draft": {waitingParts, exit(1), 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			store, err := history.Open("", history.Options{})
			if err != nil {
				t.Fatal(err)
			}
			encoded := command(t, "cc", "-c")
			of := slowBlobs{blobs{digest.Of(digest.SHA256, encoded): encoded}, make(chan struct{})}
			r := New(Options{Store: store, Memory: c.memory, Blobs: func(string, digest.Function) Blobs { return of }})
			all := c.most + 50
			for i := range all {
				st := done(strconv.Itoa(i), c.ends)
				st.Action.CommandDigest = digest.Of(digest.SHA256, encoded).Proto()
				r.Add(st, "")
			}
			close(of.may)
			m := newReader(r)
			defer m.close()
			m.readAll(t.Context())
			store.Flush()
			with := 0
			for after, at := "", 0; ; {
				found, err := Admin{r}.ListRecords(t.Context(), &admin.ListRecordsRequest{PageToken: after, PageSize: maxPage})
				if err != nil {
					t.Fatal(err)
				}
				for _, got := range found.GetRecords() {
					if at++; len(got.GetArguments()) > 0 {
						with++
					}
				}
				if after = found.GetNextPageToken(); after == "" {
					if at != all {
						t.Errorf("%d records, want %d", at, all)
					}
					break
				}
			}
			if with < c.least || with > c.most || r.waiting.bytes != 0 {
				t.Errorf("%d records have a command line, want %d to %d; %d bytes wait", with, c.least, c.most, r.waiting.bytes)
			}
		})
	}
}

// TestFoundByCommand: an operation without a target is found by its command line, whether that was
// sent to a worker or is read from the storage.
func TestFoundByCommand(t *testing.T) {
	store, err := history.Open("", history.Options{})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := proto.Marshal(&repb.Command{Arguments: []string{"gcc", "-o", "my hello"}, OutputPaths: []string{"my hello"}})
	if err != nil {
		t.Fatal(err)
	}
	command := digest.Of(digest.SHA256, encoded)
	r := New(Options{Store: store, Blobs: func(string, digest.Function) Blobs { return blobs{command: encoded} }})
	m := newReader(r)
	defer m.close()
	for _, name := range []string{"sent", "read", "with a target"} {
		st := done(name, exit(0))
		st.Action.CommandDigest = command.Proto()
		if name != "with a target" {
			st.Request.Target = ""
		}
		if name == "sent" {
			r.Sent(st.Operation, encoded)
		}
		r.Add(st, "")
		m.readAll(t.Context())
	}
	for _, q := range []history.Query{{Text: "gcc -o 'my"}, {Where: map[history.Field]string{history.Target: "gcc*"}}, {Where: map[history.Field]string{history.Target: ""}}} {
		q.Limit = 9
		if found, _, err := store.Find(t.Context(), q); err != nil || len(found) != 2 {
			t.Errorf("%+v finds %d, %v", q, len(found), err)
		}
	}
}
