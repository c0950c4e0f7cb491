package reuse

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/lookback"
	"github.com/forerunner-build/forerunner/records/sharedruns"
)

// A fakeSharedRuns is the service of a scheduler. It returns all runs that were added under the same
// circumstances to everyone with the grant "granted".
type fakeSharedRuns struct {
	mu    sync.Mutex
	runs  map[string][]*reuse.Run // by circumstances
	asked int
	fails error
	kept  chan struct{} // gets a token for each run that is kept
}

func newFakeSharedRuns() *fakeSharedRuns {
	return &fakeSharedRuns{runs: map[string][]*reuse.Run{}, kept: make(chan struct{}, 100)}
}

func (s *fakeSharedRuns) refuses(ctx context.Context) error {
	out, _ := metadata.FromOutgoingContext(ctx)
	if got := out.Get(names.GrantHeader); len(got) != 1 || got[0] != "granted" {
		return status.Error(codes.PermissionDenied, "no grant")
	}
	return s.fails
}

func (s *fakeSharedRuns) Find(ctx context.Context, r *reuse.FindRequest, _ ...grpc.CallOption) (*reuse.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if err := s.refuses(ctx); err != nil {
		return nil, err
	}
	return &reuse.Record{Runs: s.runs[string(r.GetCircumstances())]}, nil
}

func (s *fakeSharedRuns) Keep(ctx context.Context, r *reuse.KeepRequest, _ ...grpc.CallOption) (*emptypb.Empty, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuses(ctx); err != nil {
		return nil, err
	}
	k := string(r.GetCircumstances())
	s.runs[k] = append([]*reuse.Run{proto.CloneOf(r.GetRun())}, s.runs[k]...)
	s.kept <- struct{}{}
	return &emptypb.Empty{}, nil
}

// fakeMachine has a name, and has been unchanged since a time.
type fakeMachine struct {
	name    string
	changed bool
	since   []time.Time
	mu      sync.Mutex
}

func (m *fakeMachine) As(_ context.Context, since time.Time) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.since = append(m.since, since)
	return m.name, !m.changed
}

func (m *fakeMachine) Known(since time.Time) (string, bool) { return m.As(context.Background(), since) }

// A fakeWorker has records of its own, and those that it shares.
type fakeWorker struct {
	*testing.T
	records *Records
	shared  *Shared
	how     string
}

func (s *fakeSharedRuns) worker(t *testing.T, m Machine) *fakeWorker {
	t.Helper()
	shared := OpenShared(SharedOptions{Client: s, Machine: m, Logger: zap.NewNop()})
	t.Cleanup(func() { shared.Close(t.Context()) })
	return &fakeWorker{t, New(&fakeStore{}), shared, "how"}
}

func (w *fakeWorker) attempt(t lookback.Tree) *Attempt {
	w.Helper()
	a := w.records.Attempt(keyOf(w, &repb.Action{}), t)
	action := runOf("ran").Action
	a.Share(w.shared, Claim{Action: action, Reduced: action, How: []byte(w.how), Grant: "granted"})
	return a
}

// runs has a worker run its action, which looks at src/main.c, and record the run.
func (w *fakeWorker) runs(t lookback.Tree) {
	w.Helper()
	a := w.attempt(t)
	a.Hook()("src", tree.LookUp)
	a.Hook()("src/main.c", tree.LookUp|tree.LookInside)
	run := runOf("ran")
	a.Made(run.Result, run.Blobs)
	check(w, a.Keep(w.Context(), run.Action, "first", time.Unix(1, 0)))
}

// finds returns what comes of looking for a former run.
func (w *fakeWorker) finds(t lookback.Tree, s lookback.Storage) (lookback.Outcome, *Attempt) {
	w.Helper()
	a := w.attempt(t)
	a.Find(w.Context(), s)
	return a.Outcome(), a
}

var (
	sourceFiles  = files{"src/main.c": "main", "README": "1"}
	unreadEdited = sourceFiles.edited(files{"README": "2"})
	readEdited   = sourceFiles.edited(files{"src/main.c": "new"})
)

// TestRunsOfOtherWorkers has one worker run a command. Others must reuse that run if everything is
// equal.
func TestRunsOfOtherWorkers(t *testing.T) {
	service, src := newFakeSharedRuns(), &fakeSource{}
	first := service.worker(t, &fakeMachine{name: "alike"})
	first.runs(src.tree(t, sourceFiles))
	<-service.kept
	gone := fakeStorage{lacks: map[digest.Digest]bool{runOf("ran").Blobs[0]: true}}
	for name, c := range map[string]struct {
		machine *fakeMachine
		how     string
		files   files
		storage fakeStorage
		want    lookback.Outcome
	}{
		"alike":                  {&fakeMachine{name: "alike"}, "how", unreadEdited, fakeStorage{}, lookback.Reused},
		"another machine":        {&fakeMachine{name: "other"}, "how", unreadEdited, fakeStorage{}, lookback.Unknown},
		"run in another way":     {&fakeMachine{name: "alike"}, "other", unreadEdited, fakeStorage{}, lookback.Unknown},
		"a file that was read":   {&fakeMachine{name: "alike"}, "how", readEdited, fakeStorage{}, lookback.Differs},
		"outputs gone":           {&fakeMachine{name: "alike"}, "how", unreadEdited, gone, lookback.Gone},
		"a machine that changed": {&fakeMachine{name: "alike", changed: true}, "how", unreadEdited, fakeStorage{}, lookback.Unknown},
	} {
		w := service.worker(t, c.machine)
		w.how = c.how
		got, a := w.finds(src.tree(t, c.files), c.storage)
		if got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
			continue
		}
		run, reused := a.Reused()
		if !reused {
			continue
		}
		if want := runOf("ran"); run.Action != want.Action || run.Worker != "first" || !sameResult(run.Result, want.Result) {
			t.Errorf("%s: reused %v", name, run)
		}
		// A worker need not ask for a run that it has adopted.
		check(t, a.Remember(t.Context()))
		asked := service.asked
		if got, _ := w.finds(src.tree(t, unreadEdited), fakeStorage{}); got != lookback.Reused || service.asked > asked {
			t.Errorf("the next time: %s, asked %d times", got, service.asked-asked)
		}
	}
}

// TestOwnRunsFirst: a worker asks the others only for runs that it does not have itself.
func TestOwnRunsFirst(t *testing.T) {
	service, src := newFakeSharedRuns(), &fakeSource{}
	w := service.worker(t, &fakeMachine{name: "alike"})
	w.runs(src.tree(t, sourceFiles))
	<-service.kept
	if got, _ := w.finds(src.tree(t, unreadEdited), fakeStorage{}); got != lookback.Reused || service.asked > 0 {
		t.Errorf("%s, and the others were asked %d times", got, service.asked)
	}
	if got, _ := w.finds(src.tree(t, readEdited), fakeStorage{}); got != lookback.Differs || service.asked != 1 {
		t.Errorf("%s, and the others were asked %d times", got, service.asked)
	}
}

// TestSharedRunsAreChecked has the service answer what no worker would tell it, or nothing.
func TestSharedRunsAreChecked(t *testing.T) {
	src := &fakeSource{}
	now := src.tree(t, unreadEdited)
	for name, spoil := range map[string]func(s *fakeSharedRuns, m *reuse.Run){
		"exit code": func(_ *fakeSharedRuns, m *reuse.Run) {
			failed, err := proto.Marshal(&repb.ActionResult{ExitCode: 1})
			check(t, err)
			m.Result = failed
		},
		"no result":  func(_ *fakeSharedRuns, m *reuse.Run) { m.Result = []byte{0xff} },
		"no account": func(_ *fakeSharedRuns, m *reuse.Run) { m.Root = nil },
		"no action":  func(_ *fakeSharedRuns, m *reuse.Run) { m.Action = nil },
		"away":       func(s *fakeSharedRuns, _ *reuse.Run) { s.fails = status.Error(codes.Unavailable, "away") },
		"refused":    func(s *fakeSharedRuns, _ *reuse.Run) { s.fails = status.Error(codes.PermissionDenied, "no right") },
		"older":      func(s *fakeSharedRuns, _ *reuse.Run) { s.fails = status.Error(codes.Unimplemented, "unknown service") },
	} {
		service := newFakeSharedRuns()
		service.worker(t, &fakeMachine{name: "alike"}).runs(src.tree(t, sourceFiles))
		<-service.kept
		for _, runs := range service.runs {
			spoil(service, runs[0])
		}
		w := service.worker(t, &fakeMachine{name: "alike"})
		if got, a := w.finds(now, fakeStorage{}); got == lookback.Reused {
			t.Errorf("%s: %s", name, got)
		} else if err := a.Remember(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		w.runs(now) // it continues with its own runs
		if got, _ := w.finds(now, fakeStorage{}); got != lookback.Reused {
			t.Errorf("%s: its own run is %s", name, got)
		}
	}
}

// TestRunsThatAreNotShared: runs of a machine that may have changed, runs that are too large, and
// runs that end after the worker are not shared.
func TestRunsThatAreNotShared(t *testing.T) {
	src := &fakeSource{}
	service, changes := newFakeSharedRuns(), &fakeMachine{name: "alike", changed: true}
	w := service.worker(t, changes)
	before := time.Now()
	w.runs(src.tree(t, sourceFiles))
	w.shared.Close(t.Context())
	if len(service.runs) > 0 {
		t.Error("a run is shared of a machine that has changed")
	}
	if len(changes.since) != 1 || changes.since[0].Before(before) {
		t.Errorf("the machine has to be the same since %v, want a time after the run's end, %v", changes.since, before)
	}
	w.runs(src.tree(t, sourceFiles)) // after Close

	w = service.worker(t, &fakeMachine{name: "alike"})
	m := &reuse.Run{Worker: string(make([]byte, sharedruns.MaxBytes+1))}
	w.shared.keep(w.attempt(src.tree(t, sourceFiles)).claim, m)
	w.shared.Close(t.Context())
	if len(service.runs) > 0 {
		t.Error("runs are shared that nobody keeps")
	}
}

// TestOneRefusedRun: a run that the scheduler does not take says nothing of the next one, which is
// counted otherwise.
func TestOneRefusedRun(t *testing.T) {
	service, src := newFakeSharedRuns(), &fakeSource{}
	now := src.tree(t, sourceFiles)
	w := service.worker(t, &fakeMachine{name: "alike"})
	service.fails = status.Error(codes.FailedPrecondition, "the action is gone")
	w.runs(now)
	registry := prometheus.NewRegistry()
	check(t, registry.Register(w.shared.options.Counts))
	count := func(result string) float64 {
		families, err := registry.Gather()
		check(t, err)
		for _, m := range families[0].GetMetric() {
			if m.GetLabel()[0].GetValue() == result {
				return m.GetCounter().GetValue()
			}
		}
		return -1
	}
	for count(sharedLost) == 0 && count(sharedKept) == 0 {
		time.Sleep(time.Millisecond)
	}
	service.mu.Lock()
	service.fails = nil
	service.mu.Unlock()
	w.runs(now)
	w.shared.Close(t.Context())
	if lost, kept := count(sharedLost), count(sharedKept); lost != 1 || kept != 1 {
		t.Errorf("%g runs lost and %g kept, want one each", lost, kept)
	}
}

// TestCloseSharesWhatIsQueued: Close sends the queued runs, unless that takes too long.
func TestCloseSharesWhatIsQueued(t *testing.T) {
	service, src := newFakeSharedRuns(), &fakeSource{}
	w := service.worker(t, &fakeMachine{name: "alike"})
	now := src.tree(t, sourceFiles)
	for range 20 {
		w.runs(now)
	}
	w.shared.Close(t.Context())
	if n := len(service.kept); n != 20 {
		t.Errorf("%d of 20 runs were shared", n)
	}
	hangs := hangingMachine{make(chan struct{})}
	w = service.worker(t, hangs)
	w.runs(now)
	<-hangs.asked
	aborted, abort := context.WithCancelCause(t.Context())
	abort(errors.New("the worker gives up"))
	w.shared.Close(aborted)
}

// hangingMachine does not find out what it is.
type hangingMachine struct{ asked chan struct{} }

func (m hangingMachine) As(ctx context.Context, _ time.Time) (string, bool) {
	close(m.asked)
	<-ctx.Done()
	return "", false
}

func (hangingMachine) Known(time.Time) (string, bool) { return "", false }

// stuckMachine does not find out what it is, however often it is asked.
type stuckMachine struct{}

func (stuckMachine) As(ctx context.Context, _ time.Time) (string, bool) {
	<-ctx.Done()
	return "", false
}

func (stuckMachine) Known(time.Time) (string, bool) { return "", false }

// TestQueuedRunsTakeWhatTheyCount: queued runs take about as much memory as is counted: a run of
// many small parts takes seventy times its encoded size when decoded.
func TestQueuedRunsTakeWhatTheyCount(t *testing.T) {
	s := OpenShared(SharedOptions{Machine: stuckMachine{}, Logger: zap.NewNop()})
	ended, end := context.WithCancel(t.Context())
	end()
	defer s.Close(ended)
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := heap()
	for range 30 + senders {
		run := &reuse.Run{Root: &reuse.Directory{}}
		for range 20_000 {
			run.Root.Entries = append(run.Root.Entries, &reuse.Entry{})
		}
		s.keep(Claim{}, run)
	}
	counted := s.queued.Load()
	if took := heap() - before; counted < 1<<20 || took > 3*counted {
		t.Errorf("what waits takes %d bytes and counts for %d", took, counted)
	}
}

// TestCircumstances: the scheduler is told the circumstances with which runs are shared, while the
// machine is known to be unchanged. Looking for a run keeps that known, even if the worker has the
// run itself.
func TestCircumstances(t *testing.T) {
	service, src, machine := newFakeSharedRuns(), &fakeSource{}, &fakeMachine{name: "alike"}
	w := service.worker(t, machine)
	w.runs(src.tree(t, sourceFiles))
	<-service.kept
	here := w.shared.Circumstances([]byte(w.how))
	if service.runs[string(here)] == nil {
		t.Errorf("circumstances %x have no run", here)
	}
	if other := w.shared.Circumstances([]byte("other")); string(other) == string(here) {
		t.Error("runs in another way have the same circumstances")
	}
	began := time.Now()
	if got, _ := w.finds(src.tree(t, unreadEdited), fakeStorage{}); got != lookback.Reused {
		t.Error(got)
	}
	if since := machine.since[len(machine.since)-1]; since.Before(began.Add(-maxAge / 2)) {
		t.Errorf("a check from %s before was not renewed", began.Sub(since))
	}
	machine.changed = true
	if here := w.shared.Circumstances([]byte(w.how)); here != nil {
		t.Errorf("a machine that changed has the circumstances %x", here)
	}
	if here := (*Shared)(nil).Circumstances(nil); here != nil {
		t.Errorf("a worker that shares no runs has the circumstances %x", here)
	}
}
