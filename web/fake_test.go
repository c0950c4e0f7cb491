package web

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/admin"
	historypb "github.com/forerunner-build/forerunner/proto/history"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/runs"
	"github.com/forerunner-build/forerunner/records/record"
)

// A fakeScheduler answers from its fields and records the requests for changes.
type fakeScheduler struct {
	admin.UnimplementedSchedulerServer
	longrunningpb.UnimplementedOperationsServer
	bytestream.UnimplementedByteStreamServer

	mu     sync.Mutex
	queued int64
	calls  int
	told   []string
	done   bool
	ended  []*historypb.Record
	open   []*admin.Operation // the open operations of invocations
	stderr digest.Digest      // of a completed operation
	over   bool               // its output is from a second run; the first one does not count
}

const operationOf = "operations/11111111-2222"

func (f *fakeScheduler) tell(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, what)
}

func (f *fakeScheduler) ListQueues(context.Context, *admin.ListQueuesRequest) (*admin.ListQueuesResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	return &admin.ListQueuesResponse{
		Unmatched: 2, UnmatchedReason: "no worker has OS=plan9", WorkersLost: 1234,
		Queues: []*admin.Queue{{
			Platform: []*admin.Property{{Name: "OS", Value: "linux"}}, SizeClass: 4, Workers: 10, Busy: 8, Draining: 1, Resting: 1,
			Executing: 17, Slots: 20, SlotsBusy: 16, SlotsFree: 2,
			Queued: f.queued, HeadAction: strings.Repeat("ab", 32) + "/7", HeadReason: "all 9 workers that take work are busy",
			HeadOperation: operationOf,
			Root: &admin.Branch{Children: []*admin.Branch{
				{Key: "team-a", Queued: 5, Running: 6, Due: 1, Why: "at its maximum", Children: []*admin.Branch{{Key: "<b>build</b>", Running: 6, Due: 1}}},
				{Key: "team-b", Queued: 1, Running: 3, Due: 3},
			}},
		}},
	}, nil
}

func (f *fakeScheduler) ListWorkers(_ context.Context, req *admin.ListWorkersRequest) (*admin.ListWorkersResponse, error) {
	report := &live.Report{
		Slots: 6, StoreBytes: 30 << 30, StoreMaxBytes: 40 << 30, FilesForeseen: 15, FilesLate: 2, FilesMissed: 3, FilesLocal: 80,
		StoreHealth: &live.StoreHealth{Scrub: &live.Scrub{Done: 0.42, Due: timestamppb.New(time.Now().Add(96*time.Hour + time.Minute))}},
	}
	return &admin.ListWorkersResponse{
		Workers: []*admin.Worker{
			{
				Identity: map[string]string{"host": "v"}, State: admin.Worker_EXECUTING, Action: "cdcdcdcdcdcdcd/9", Report: report, Slots: 6, Actions: 1,
				Positions: []*admin.Position{{Name: "0", State: admin.Worker_IDLE}, {Name: "1", State: admin.Worker_EXECUTING, Action: "cdcdcdcdcdcdcd/9"}},
			},
			{Identity: map[string]string{"host": "w,1", "slot": "0"}, State: admin.Worker_DRAINED, DrainedByPattern: true, Slots: 1},
		},
		Lost:   []*admin.LostWorker{{Identity: map[string]string{"host": "dead"}, At: timestamppb.Now(), Action: "efefefefefefef/9", Actions: 3}},
		Drains: []*admin.ActiveDrain{{Pattern: &admin.Pattern{Attributes: map[string]string{"host": "old-*"}}, Reason: "<disks>", Author: "ann"}}, NextPageToken: "more&" + req.GetPageToken(),
	}, nil
}

func (f *fakeScheduler) ListStores(_ context.Context, req *admin.ListStoresRequest) (*admin.ListStoresResponse, error) {
	if !req.GetOwn() {
		return nil, status.Error(codes.InvalidArgument, "the page needs no others")
	}
	return &admin.ListStoresResponse{Stores: []*admin.Store{{
		Bytes: 50 << 30, MaxBytes: 80 << 30, Blobs: 4321, Health: &live.StoreHealth{DamagedBlobs: 3},
	}}}, nil
}

func (f *fakeScheduler) ListQuotas(context.Context, *admin.ListQuotasRequest) (*admin.ListQuotasResponse, error) {
	return &admin.ListQuotasResponse{Cohorts: []*admin.Cohort{
		{Name: "x86", Unit: "slots", Capacity: 40, Used: 30, Minimums: 50, Warning: "more is promised than there is", Quotas: []*admin.Quota{
			{InstanceName: "web", Min: 20, Max: 35, Used: 30, Waiting: 7},
		}},
	}}, nil
}

func (f *fakeScheduler) Drain(_ context.Context, req *admin.DrainRequest) (*admin.DrainResponse, error) {
	f.tell("drain " + names.Pairs(req.GetPattern().GetAttributes()))
	return &admin.DrainResponse{}, nil
}

func (f *fakeScheduler) Undrain(_ context.Context, req *admin.UndrainRequest) (*admin.UndrainResponse, error) {
	f.tell("undrain " + names.Pairs(req.GetPattern().GetAttributes()))
	return &admin.UndrainResponse{}, nil
}

func (f *fakeScheduler) KillOperations(_ context.Context, req *admin.KillOperationsRequest) (*admin.KillOperationsResponse, error) {
	f.tell("kill " + names.Pairs(req.GetPattern().GetAttributes()))
	return &admin.KillOperationsResponse{Killed: 1}, nil
}

func (f *fakeScheduler) ListOperations(_ context.Context, req *admin.ListOperationsRequest) (*admin.ListOperationsResponse, error) {
	f.tell("list " + names.Pairs(req.GetPattern().GetAttributes()))
	if req.GetPattern().GetAttributes()["invocation"] != "" {
		f.mu.Lock()
		defer f.mu.Unlock()
		return &admin.ListOperationsResponse{Operations: slices.Clone(f.open)}, nil
	}
	return &admin.ListOperationsResponse{Operations: []*admin.Operation{
		{Name: operationOf, Target: "//a:<script>alert(1)</script>", Mnemonic: "GoCompile", Queued: timestamppb.Now()},
	}}, nil
}

func (f *fakeScheduler) operationMessage() *admin.Operation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &admin.Operation{
		Name: operationOf, Action: strings.Repeat("ab", 32) + "/7", DigestFunction: "sha256", InstanceName: "main",
		Mnemonic: "GoCompile", Queued: timestamppb.New(time.Now().Add(-time.Hour)), Done: f.done,
		SizeClass: 4, SizeReason: "least delay", WaitsFor: "for its turn",
	}
}

func (f *fakeScheduler) GetSizes(context.Context, *admin.GetSizesRequest) (*admin.GetSizesResponse, error) {
	return &admin.GetSizesResponse{
		SizeClass: 1, Reason: "it was fast enough", Sizes: []*admin.SizeStats{
			{
				SizeClass: 1, Succeeded: 3, Expected: durationpb.New(2 * time.Second), Acceptable: durationpb.New(4 * time.Second), Probability: 0.9,
				Runs: []*runs.Run{
					{Outcome: runs.Outcome_SUCCEEDED, DurationNanoseconds: 2e9},
					{Outcome: runs.Outcome_FAILED},
					{Outcome: runs.Outcome_TIMED_OUT, DurationNanoseconds: 5e9},
				},
			},
			{SizeClass: 4, Succeeded: 1, Expected: durationpb.New(time.Second)},
		},
	}, nil
}

// fakeOperations has the methods of a fakeScheduler whose names are also in fakeAdmin.
type fakeOperations struct {
	longrunningpb.UnimplementedOperationsServer
	f *fakeScheduler
}

func (o fakeOperations) GetOperation(_ context.Context, req *longrunningpb.GetOperationRequest) (*longrunningpb.Operation, error) {
	meta := &repb.ExecuteOperationMetadata{Stage: repb.ExecutionStage_EXECUTING}
	m := &longrunningpb.Operation{Name: req.GetName()}
	if o.f.operationMessage().GetDone() {
		meta.Stage = repb.ExecutionStage_COMPLETED
		at := func(ms int) *timestamppb.Timestamp { return timestamppb.New(time.UnixMilli(1e12 + int64(ms))) }
		response := packed(&repb.ExecuteResponse{
			Message: "killed for want of memory",
			Result: &repb.ActionResult{ExitCode: 137, StdoutRaw: []byte("a < b\xff"), StderrDigest: o.f.stderr.Proto(), ExecutionMetadata: &repb.ExecutedActionMetadata{
				Worker: "w1", QueuedTimestamp: at(0), WorkerStartTimestamp: at(-3), // the clock of another machine
				ExecutionStartTimestamp: at(100), ExecutionCompletedTimestamp: at(400), WorkerCompletedTimestamp: at(500),
				AuxiliaryMetadata: []*anypb.Any{
					packed(&actionstats.Prefetch{Profile: "exact", HitRate: proto.Float64(0.75), Foreseen: &actionstats.Files{Files: 3, Bytes: 20 << 20}}),
					{TypeUrl: "type.googleapis.com/nobody.Knows", Value: []byte{1}},
				},
			}},
		})
		m.Done, m.Result = true, &longrunningpb.Operation_Response{Response: response}
	}
	m.Metadata = packed(meta)
	return m, nil
}

func packed(m proto.Message) *anypb.Any {
	a, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return a
}

// fakeAdmin has the methods of admin.SchedulerServer whose names are also in fakeOperations.
type fakeAdmin struct{ *fakeScheduler }

func (f fakeAdmin) GetOperation(_ context.Context, req *admin.GetOperationRequest) (*admin.Operation, error) {
	if req.GetName() != operationOf {
		return nil, status.Errorf(codes.NotFound, "operation %q is not known", req.GetName())
	}
	return f.operationMessage(), nil
}

// Read implements bytestream.ByteStreamServer.
func (f *fakeScheduler) Read(req *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	if req.GetResourceName() != "streams/"+operationOf+"/stdout" {
		return status.Error(codes.NotFound, "no such stream")
	}
	if !f.over {
		f.over = true
		if err := stream.Send(&bytestream.ReadResponse{Data: []byte("wrong \xe2")}); err != nil {
			return err
		}
		return names.ErrStartedOver()
	}
	for _, text := range []string{"one\n", "tw\xffo </pre>\n", "\xe2", "\x82\xac \xe2\x82"} {
		if err := stream.Send(&bytestream.ReadResponse{Data: []byte(text)}); err != nil {
			return err
		}
	}
	return nil
}

// fakeBlobs has blobs by digest.
type fakeBlobs map[digest.Digest][]byte

func (b fakeBlobs) Read(_ context.Context, d digest.Digest) ([]byte, error) {
	if blob, ok := b[d]; ok {
		return blob, nil
	}
	return nil, cas.ErrNotFound
}

// put stores a message and returns its digest.
func (b fakeBlobs) put(m proto.Message) digest.Digest {
	d, raw, err := digest.OfMessage(digest.SHA256, m)
	if err != nil {
		panic(err)
	}
	b[d] = raw
	return d
}

// fakeProfiles has profiles by digest.
type fakeProfiles map[digest.Digest][]byte

func (p fakeProfiles) Get(_ context.Context, k record.Key) ([]byte, error) {
	if value, ok := p[k.Digest]; ok {
		return value, nil
	}
	return nil, record.ErrNotFound
}

func (p fakeProfiles) Put(_ context.Context, k record.Key, value []byte) error {
	p[k.Digest] = value
	return nil
}

// A browser sends requests to a Site.
type browser struct {
	t         *testing.T
	scheduler *fakeScheduler
	blobs     fakeBlobs
	profiles  fakeProfiles
	options   Options
	site      *Site
	server    *httptest.Server
}

func newBrowser(t *testing.T, readOnly bool) *browser {
	t.Helper()
	b := &browser{t: t, scheduler: &fakeScheduler{}, blobs: fakeBlobs{}, profiles: fakeProfiles{}}
	b.options = Options{
		Scheduler: fakeAdmin{b.scheduler}, Operations: fakeOperations{f: b.scheduler}, Output: b.scheduler,
		Blobs:    func(string, digest.Function) Blobs { return b.blobs },
		Profiles: b.profiles, ReadOnly: readOnly,
	}
	b.server = httptest.NewUnstartedServer(nil)
	b.server.Config.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		_ = conn.(*net.TCPConn).SetWriteBuffer(256 << 10) // limits the unread data of a client that does not read, whatever the machine's default is
		return ctx
	}
	b.server.Start()
	t.Cleanup(b.server.Close)
	b.change(func(*Options) {})
	return b
}

// change replaces the Site by one with other options.
func (b *browser) change(how func(*Options)) {
	b.t.Helper()
	how(&b.options)
	site, err := New(b.options)
	if err != nil {
		b.t.Fatal(err)
	}
	b.site, b.server.Config.Handler = site, site.Handler()
}

// get returns a page and checks the status of the answer.
func (b *browser) get(path string, want int) string {
	b.t.Helper()
	resp, err := http.Get(b.server.URL + path)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	if resp.StatusCode != want {
		b.t.Errorf("%s: status %d, want %d: %s", path, resp.StatusCode, want, body)
	}
	return string(body)
}

// post sends a form as if from a page of that origin, and returns the status of the answer.
func (b *browser) post(path, origin string, form url.Values) int {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, b.server.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", origin)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		b.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// follow passes the events of a page to next until next returns false or the stream ends.
func (b *browser) follow(path string, next func(name, data string) bool) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.server.URL+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	req.Header.Set("Accept", eventStream)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	var name, data string
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		switch line := lines.Text(); {
		case strings.HasPrefix(line, "event: "):
			name, data = line[len("event: "):], ""
		case strings.HasPrefix(line, "data: "):
			data += line[len("data: "):] + "\n"
		case !next(name, data):
			return
		}
	}
}
