package scheduler

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	longrunningpb "cloud.google.com/go/longrunning/autogen/longrunningpb"
	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
)

// fakeStorage is a Storage in memory.
type fakeStorage struct {
	mu      sync.Mutex
	blobs   map[digest.Digest][]byte
	results map[digest.Digest]*repb.ActionResult
	broken  error
}

func newFakeStorage() *fakeStorage {
	return &fakeStorage{
		blobs:   map[digest.Digest][]byte{},
		results: map[digest.Digest]*repb.ActionResult{},
	}
}

func (f *fakeStorage) Read(_ context.Context, d digest.Digest) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return nil, f.broken
	}
	if b, ok := f.blobs[d]; ok {
		return b, nil
	}
	return nil, &cas.MissingError{Digests: []digest.Digest{d}}
}

func (f *fakeStorage) GetActionResult(_ context.Context, d digest.Digest) (*repb.ActionResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r, ok := f.results[d]; ok {
		return r, nil
	}
	return nil, cas.ErrNotFound
}

func (f *fakeStorage) put(m proto.Message) *repb.Digest {
	return f.putBytes(digest.SHA256, must(proto.Marshal(m)))
}

func (f *fakeStorage) putBytes(fn digest.Function, b []byte) *repb.Digest {
	d := digest.Of(fn, b)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blobs[d] = b
	return d.Proto()
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// action stores an action that runs /bin/name, changed by each of edits.
func (f *fakeStorage) action(name string, edits ...func(*repb.Action, *repb.Command)) *repb.Digest {
	command := &repb.Command{Arguments: []string{"/bin/" + name}}
	action := &repb.Action{InputRootDigest: digest.SHA256.Empty().Proto()}
	for _, edit := range edits {
		edit(action, command)
	}
	action.CommandDigest = f.put(command)
	return f.put(action)
}

// farm is a Server behind a connection in memory, in a bubble of virtual time.
type farm struct {
	t       *testing.T
	storage *fakeStorage
	server  *Server
	logs    *observer.ObservedLogs
	conn    *grpc.ClientConn
	// dial makes a further connection, which the caller closes.
	dial func() *grpc.ClientConn
	// stop ends Server.Run and returns when it has.
	stop func()
}

// inFarm runs a test against a server in virtual time.
func inFarm(t *testing.T, o ServerOptions, test func(t *testing.T, f *farm)) {
	t.Helper()
	inFarmWith(t, func() ServerOptions { return o }, test)
}

// inFarmWith is inFarm with options that have channels, which must be made in virtual time.
func inFarmWith(t *testing.T, options func() ServerOptions, test func(t *testing.T, f *farm)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o := options()
		core, logs := observer.New(zap.InfoLevel)
		f := &farm{t: t, storage: newFakeStorage(), logs: logs}
		o.Logger = zap.New(core)
		o.Storage = func(string, digest.Function) Storage { return f.storage }
		var err error
		if f.server, err = NewServer(o); err != nil {
			t.Fatal(err)
		}
		lis := bufconn.Listen(1 << 16)
		g := grpc.NewServer()
		f.server.Register(g)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = g.Serve(f.server.Watch(lis)) })
		run := make(chan struct{})
		running.Go(func() { _ = f.server.Run(ctx); close(run) })
		f.stop = func() { cancel(); <-run }
		f.dial = func() *grpc.ClientConn {
			return must(grpc.NewClient("passthrough:///farm",
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) })))
		}
		f.conn = f.dial()
		test(t, f)
		f.stop()
		_ = f.conn.Close()
		g.Stop()
		running.Wait()
	})
}

// client returns the farm as a client sees it that has a connection of its own, until hangup breaks
// that.
func (f *farm) client() (client *farm, hangup func()) {
	own := *f
	own.conn = f.dial()
	return &own, func() { _ = own.conn.Close() }
}

// execute starts an action and returns its stream.
func (f *farm) execute(ctx context.Context, req *repb.ExecuteRequest) *stream {
	f.t.Helper()
	s, err := repb.NewExecutionClient(f.conn).Execute(ctx, req)
	if err != nil {
		f.t.Fatal(err)
	}
	return &stream{f.t, s}
}

func (f *farm) wait(ctx context.Context, name string) *stream {
	f.t.Helper()
	s, err := repb.NewExecutionClient(f.conn).WaitExecution(ctx, &repb.WaitExecutionRequest{Name: name})
	if err != nil {
		f.t.Fatal(err)
	}
	return &stream{f.t, s}
}

// stream reads the operations of one call.
type stream struct {
	t *testing.T
	s grpc.ServerStreamingClient[longrunningpb.Operation]
}

// next returns the next message and its metadata.
func (s *stream) next() (*longrunningpb.Operation, *repb.ExecuteOperationMetadata) {
	s.t.Helper()
	op, err := s.s.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	meta := &repb.ExecuteOperationMetadata{}
	if err := op.GetMetadata().UnmarshalTo(meta); err != nil {
		s.t.Fatal(err)
	}
	if op.GetDone() != (meta.GetStage() == repb.ExecutionStage_COMPLETED) || op.GetError() != nil {
		s.t.Fatalf("bad operation: %v", op)
	}
	return op, meta
}

// at reads one message and checks its stage.
func (s *stream) at(stage repb.ExecutionStage_Value) *longrunningpb.Operation {
	s.t.Helper()
	op, meta := s.next()
	if meta.GetStage() != stage {
		s.t.Fatalf("stage %s, want %s", meta.GetStage(), stage)
	}
	return op
}

// done reads to the end and returns the response.
func (s *stream) done() *repb.ExecuteResponse {
	s.t.Helper()
	for {
		op, _ := s.next()
		if !op.GetDone() {
			continue
		}
		resp := &repb.ExecuteResponse{}
		if err := op.GetResponse().UnmarshalTo(resp); err != nil {
			s.t.Fatal(err)
		}
		if _, err := s.s.Recv(); !errors.Is(err, io.EOF) {
			s.t.Fatalf("after the end: %v", err)
		}
		return resp
	}
}

// fails reads until the stream fails.
func (s *stream) fails(code codes.Code, text string) error {
	s.t.Helper()
	for {
		_, err := s.s.Recv()
		if err == nil {
			continue
		}
		wantStatus(s.t, err, code, text)
		return err
	}
}

func wantStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		t.Fatalf("got %v, want %s with %q", err, code, text)
	}
}

// fakeWorker reports what a test says, as one identity.
type fakeWorker struct {
	f     *farm
	req   *remoteworker.SynchronizeRequest
	cache string   // where it says that it serves its store
	boot  string   // which start of its program it says that this is
	like  string   // the circumstances under which it says that it runs commands
	takes string   // how large a Command it says that it takes with an action
	slots string   // how many commands it says that its program runs at once
	near  []string // the peers that came with the last answer
	gives []string // headers with which it gives the result of an action
	grant []string // the grant that came with the last answer, and whether the result may be given
}

func (f *farm) worker(name string) *fakeWorker {
	return &fakeWorker{f: f, req: &remoteworker.SynchronizeRequest{WorkerId: map[string]string{"host": name}}}
}

func (w *fakeWorker) sync(ctx context.Context) (*remoteworker.SynchronizeResponse, error) {
	if w.cache != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, names.CacheHeader, w.cache)
	}
	if w.boot != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, names.BootHeader, w.boot)
	}
	if w.like != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, names.CircumstancesHeader, w.like)
	}
	if w.slots != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, names.SlotsHeader, w.slots)
	}
	if w.takes != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, names.CommandHeader, w.takes)
	}
	ctx = metadata.AppendToOutgoingContext(ctx, w.gives...)
	var header metadata.MD
	resp, err := remoteworker.NewOperationQueueClient(w.f.conn).Synchronize(ctx, proto.CloneOf(w.req), grpc.Header(&header))
	w.near = header.Get(names.PeerHeader)
	w.grant = append(header.Get(names.GrantHeader), header.Get(names.ResultHeader)...)
	return resp, err
}

// idle waits for an action.
func (w *fakeWorker) idle() *remoteworker.DesiredState_Executing {
	w.f.t.Helper()
	for {
		w.req.CurrentState = &remoteworker.CurrentState{
			WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}},
		}
		resp, err := w.sync(w.f.t.Context())
		if err != nil {
			w.f.t.Fatal(err)
		}
		if x := resp.GetDesiredState().GetExecuting(); x != nil {
			return x
		}
	}
}

// running says that the action is being worked on.
func (w *fakeWorker) running(d *repb.Digest) *remoteworker.SynchronizeResponse {
	w.f.t.Helper()
	w.req.CurrentState = executing(&remoteworker.CurrentState_Executing{
		ActionDigest:   d,
		ExecutionState: &remoteworker.CurrentState_Executing_Running{Running: &emptypb.Empty{}},
	})
	resp, err := w.sync(w.f.t.Context())
	if err != nil {
		w.f.t.Fatal(err)
	}
	return resp
}

func (w *fakeWorker) completed(d *repb.Digest, r *repb.ExecuteResponse) *remoteworker.SynchronizeResponse {
	w.f.t.Helper()
	w.req.CurrentState = executing(&remoteworker.CurrentState_Executing{
		ActionDigest:   d,
		ExecutionState: &remoteworker.CurrentState_Executing_Completed{Completed: r},
	})
	resp, err := w.sync(w.f.t.Context())
	if err != nil {
		w.f.t.Fatal(err)
	}
	return resp
}

func executing(x *remoteworker.CurrentState_Executing) *remoteworker.CurrentState {
	return &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Executing_{Executing: x}}
}
