package worker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
)

// fakeInterval is how often the fake scheduler wants to hear of a running action.
const fakeInterval = 20 * time.Millisecond

// A fakeScheduler hands out one job at a time to each position and remembers what
// it was told.
type fakeScheduler struct {
	remoteworker.UnimplementedOperationQueueServer
	work chan *job

	mu       sync.Mutex
	current  map[string]*job // by position
	requests []*remoteworker.SynchronizeRequest
	refuse   int      // calls that are to fail
	restless bool     // it holds no call
	near     []string // the peers of every action
	caches   []string // where workers said that they serve their stores
	suffixes []string // of instance names that workers reported, one after the other
	takes    bool     // the results of actions with the report of their end
	given    []string // the headers with which these came
}

func newFakeScheduler() *fakeScheduler {
	return &fakeScheduler{work: make(chan *job), current: map[string]*job{}}
}

// A job is an action that the fake scheduler hands out.
type job struct {
	desired   *remoteworker.DesiredState_Executing
	digest    digest.Digest
	states    chan string                // every state that was reported, in order
	completed chan *repb.ExecuteResponse // gets the response once
	withdrawn bool                       // guarded by the scheduler's mu
	successor *job                       // is to run in its place; guarded by the scheduler's mu
}

func (s *fakeScheduler) Synchronize(
	ctx context.Context, r *remoteworker.SynchronizeRequest,
) (*remoteworker.SynchronizeResponse, error) {
	s.named(metadata.ValueFromIncomingContext(ctx, names.InstanceHeader))
	s.gets(ctx, r)
	response, hold, err := s.told(r)
	if err != nil || !hold {
		return response, err
	}
	select {
	case <-s.tired():
		return response, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	case j := <-s.work:
		s.mu.Lock()
		s.current[r.GetWorkerId()["position"]] = j
		near := s.near
		s.caches = metadata.ValueFromIncomingContext(ctx, names.CacheHeader)
		s.mu.Unlock()
		header := metadata.MD{names.PeerHeader: near, names.GrantHeader: {"granted"}}
		if s.takes {
			header.Set(names.ResultHeader, "1")
		}
		if err := grpc.SetHeader(ctx, header); err != nil {
			return nil, err
		}
		return &remoteworker.SynchronizeResponse{
			NextSynchronizationAt: timestamppb.New(time.Now().Add(fakeInterval)),
			DesiredState: &remoteworker.DesiredState{
				WorkerState: &remoteworker.DesiredState_Executing_{Executing: j.desired},
			},
		}, nil
	}
}

// tired is closed if a call is not held.
func (s *fakeScheduler) tired() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.restless {
		return nil
	}
	tired := make(chan struct{})
	close(tired)
	return tired
}

// named takes note of the instance names of actions.
func (s *fakeScheduler) named(suffixes []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.suffixes = slices.Compact(append(s.suffixes, suffixes...))
}

// gets takes note of a result for the action cache. It comes with the end of its action only.
func (s *fakeScheduler) gets(ctx context.Context, r *remoteworker.SynchronizeRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	function := metadata.ValueFromIncomingContext(ctx, names.ResultHeader)
	if len(function) == 0 {
		return
	}
	s.given = append(s.given, function...)
	s.given = append(s.given, metadata.ValueFromIncomingContext(ctx, names.GrantHeader)...)
	if r.GetCurrentState().GetExecuting().GetCompleted() == nil {
		s.given = append(s.given, "without an end")
	}
}

// told takes note of a report. The call is to be held when there is nothing to answer.
func (s *fakeScheduler) told(
	r *remoteworker.SynchronizeRequest,
) (response *remoteworker.SynchronizeResponse, hold bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse > 0 {
		s.refuse--
		return nil, false, status.Error(codes.Unavailable, "refused by the test")
	}
	s.requests = append(s.requests, proto.CloneOf(r))
	response = &remoteworker.SynchronizeResponse{NextSynchronizationAt: timestamppb.New(time.Now().Add(fakeInterval))}
	position := r.GetWorkerId()["position"]
	executing, j := r.GetCurrentState().GetExecuting(), s.current[position]
	known := executing != nil && j != nil && !j.withdrawn &&
		proto.Equal(executing.GetActionDigest(), j.desired.GetActionDigest())
	if known {
		j.states <- stateName(executing)
	}
	switch {
	case known && executing.GetCompleted() == nil:
		if next := j.successor; next != nil {
			s.current[position] = next
			response.DesiredState = &remoteworker.DesiredState{
				WorkerState: &remoteworker.DesiredState_Executing_{Executing: next.desired},
			}
		}
		return response, false, nil
	case known:
		j.completed <- executing.GetCompleted()
		delete(s.current, position)
	}
	idle := &remoteworker.DesiredState_Idle{Idle: &emptypb.Empty{}}
	response.DesiredState = &remoteworker.DesiredState{WorkerState: idle}
	unwanted := executing != nil && !known
	return response, !r.GetPreferBeingIdle() && !unwanted, nil
}

func stateName(e *remoteworker.CurrentState_Executing) string {
	switch e.GetExecutionState().(type) {
	case *remoteworker.CurrentState_Executing_Started:
		return "started"
	case *remoteworker.CurrentState_Executing_FetchingInputs:
		return "fetching"
	case *remoteworker.CurrentState_Executing_Running:
		return "running"
	case *remoteworker.CurrentState_Executing_UploadingOutputs:
		return "uploading"
	case *remoteworker.CurrentState_Executing_Completed:
		return "completed"
	}
	return "unknown"
}

// fail makes the next n calls fail.
func (s *fakeScheduler) fail(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = n
}

// withdraw makes the scheduler want nothing of j any more.
func (s *fakeScheduler) withdraw(j *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.withdrawn = true
}

// replace makes the scheduler want next to run in the place of j.
func (s *fakeScheduler) replace(j, next *job) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j.successor = next
}

// heard waits until some request so far satisfies ok.
func (s *fakeScheduler) heard(t *testing.T, what string, ok func(*remoteworker.SynchronizeRequest) bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		found := slices.ContainsFunc(s.requests, ok)
		s.mu.Unlock()
		if found {
			return
		}
	}
	t.Fatalf("the scheduler never heard of %s", what)
}

func (s *fakeScheduler) last() *remoteworker.SynchronizeRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[len(s.requests)-1]
}

// A spec is an action in short.
type spec struct {
	inputs     tree
	root       digest.Digest // instead of inputs
	shell      string        // a script for /bin/sh
	args       []string      // instead of shell
	env        map[string]string
	dir        string
	paths      []string // output_paths
	files      []string // output_files
	dirs       []string // output_directories
	format     repb.Command_OutputDirectoryFormat
	timeout    time.Duration // default a minute
	doNotCache bool
	platform   map[string]string
	command    digest.Digest // instead of all of the above that is the Command's
}

// job uploads what s names.
func (f *farm) job(t *testing.T, s spec) *job {
	t.Helper()
	if s.args == nil {
		s.args = []string{"/bin/sh", "-c", s.shell}
	}
	command := &repb.Command{
		Arguments: s.args, WorkingDirectory: s.dir, OutputPaths: s.paths, OutputDirectoryFormat: s.format,
		//lint:ignore SA1019 what clients of API 2.0 send
		OutputFiles: s.files, OutputDirectories: s.dirs,
		EnvironmentVariables: []*repb.Command_EnvironmentVariable{{Name: "PATH", Value: "/usr/bin:/bin"}},
	}
	for name, value := range s.env {
		command.EnvironmentVariables = append(command.EnvironmentVariables,
			&repb.Command_EnvironmentVariable{Name: name, Value: value})
	}
	if s.command.IsZero() {
		s.command = f.message(t, command)
	}
	if s.root.IsZero() {
		s.root = f.put(t, s.inputs)
	}
	action := &repb.Action{
		CommandDigest: s.command.Proto(), InputRootDigest: s.root.Proto(), DoNotCache: s.doNotCache,
		Timeout: durationpb.New(cmp.Or(s.timeout, time.Minute)),
	}
	for name, value := range s.platform {
		if action.Platform == nil {
			action.Platform = &repb.Platform{}
		}
		action.Platform.Properties = append(action.Platform.Properties, &repb.Platform_Property{Name: name, Value: value})
	}
	d := f.message(t, action)
	return &job{
		desired: &remoteworker.DesiredState_Executing{
			ActionDigest: d.Proto(), Action: action, QueuedTimestamp: timestamppb.Now(),
			DigestFunction: repb.DigestFunction_SHA256,
		},
		digest: d, states: make(chan string, 1<<16), completed: make(chan *repb.ExecuteResponse, 1),
	}
}

// start hands out the action s.
func (f *farm) start(t *testing.T, s spec) *job {
	t.Helper()
	j := f.job(t, s)
	select {
	case f.scheduler.work <- j:
	case <-time.After(patience):
		t.Fatal("the worker does not ask for work")
	}
	return j
}

// run runs the action s and returns the response.
func (f *farm) run(t *testing.T, s spec) *repb.ExecuteResponse {
	t.Helper()
	return f.start(t, s).result(t)
}

func (j *job) result(t *testing.T) *repb.ExecuteResponse {
	t.Helper()
	select {
	case r := <-j.completed:
		return r
	case <-time.After(patience):
		t.Fatal("the action did not end")
	}
	return nil
}

// reaches waits until the worker has reported a state.
func (j *job) reaches(t *testing.T, state string) {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case got := <-j.states:
			if got == state {
				return
			}
		case <-deadline:
			t.Fatalf("the action was never reported as %s", state)
		}
	}
}

// assertGood runs an action that must succeed, whatever happened before.
func (f *farm) assertGood(t *testing.T) {
	t.Helper()
	r := f.run(t, spec{inputs: tree{"in": "good\n"}, shell: "cat in > out/copy", paths: []string{"out/copy"}, env: map[string]string{"TEST": t.Name()}})
	assertOK(t, r)
	if files := r.GetResult().GetOutputFiles(); len(files) != 1 || f.read(t, files[0].GetDigest()) != "good\n" {
		t.Errorf("outputs of a good action are %v", files)
	}
}

func sortDirectory(m *repb.Directory) {
	slices.SortFunc(m.Files, func(a, b *repb.FileNode) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Directories, func(a, b *repb.DirectoryNode) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Symlinks, func(a, b *repb.SymlinkNode) int { return cmp.Compare(a.Name, b.Name) })
}

// TestNoSizeClass has a worker without a size class say so: a scheduler that knows none refuses it
// as one of class 1.
func TestNoSizeClass(t *testing.T) {
	f := newFarm(t) // with the zero Options.SizeClass
	f.assertGood(t)
	if got := f.scheduler.last().GetSizeClass(); got != 0 {
		t.Errorf("size class %d", got)
	}
}
