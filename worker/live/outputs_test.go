package live

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	livepb "github.com/forerunner-build/forerunner/proto/live"
)

// fakeOutputs is a scheduler that requests the output of commands.
type fakeOutputs struct {
	grpc.ClientStream
	watches chan *livepb.Watch // for the worker; closed: the call breaks
	fault   func() error       // of a call of Serve; nil: none

	mu     sync.Mutex
	chunks map[string][]*livepb.Chunk // by id; guarded by mu
	done   map[string]bool            // streams without readers; guarded by mu
	told   []*livepb.Report           // guarded by mu
	early  int                        // number of reports before the call of Serve; guarded by mu
	read   int64                      // bytes read from the worker; guarded by mu
}

func newFakeOutputs() *fakeOutputs {
	return &fakeOutputs{watches: make(chan *livepb.Watch), chunks: map[string][]*livepb.Chunk{}, done: map[string]bool{}}
}

func (f *fakeOutputs) Serve(
	ctx context.Context, hello *livepb.ServeRequest, _ ...grpc.CallOption,
) (grpc.ServerStreamingClient[livepb.Watch], error) {
	if f.fault != nil {
		return nil, f.fault()
	}
	if p := hello.GetInstanceNamePrefix(); p != "acme" {
		return nil, status.Errorf(codes.PermissionDenied, "the prefix is %q", p)
	}
	return &fakeServing{f, ctx}, nil
}

func (f *fakeOutputs) Push(_ context.Context, c *livepb.Chunk, _ ...grpc.CallOption) (*livepb.Pushed, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c.Data = bytes.Clone(c.GetData()) // the worker uses its buffer again
	f.chunks[c.GetId()] = append(f.chunks[c.GetId()], c)
	return &livepb.Pushed{Done: f.done[c.GetId()]}, nil
}

func (f *fakeOutputs) Tell(_ context.Context, r *livepb.Report, _ ...grpc.CallOption) (*livepb.Told, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.early > 0 {
		f.early--
		return nil, status.Error(codes.FailedPrecondition, "no call of Serve")
	}
	f.told = append(f.told, r)
	return &livepb.Told{}, nil
}

func (f *fakeOutputs) report() *livepb.Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return &livepb.Report{FilesLocal: f.read}
}

type fakeServing struct {
	*fakeOutputs
	ctx context.Context
}

func (f *fakeServing) Recv() (*livepb.Watch, error) {
	select {
	case w, ok := <-f.watches:
		if !ok {
			return nil, io.EOF
		}
		return w, nil
	case <-f.ctx.Done():
		return nil, f.ctx.Err()
	}
}

// shown returns the text of a stream, the number of its chunks, and whether the last chunk was
// marked as the end.
func (f *fakeOutputs) shown(t *testing.T, id string) (text string, chunks int, end bool) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	var all strings.Builder
	for _, c := range f.chunks[id] {
		if end || len(c.GetData()) > chunkBytes {
			t.Errorf("%s: a chunk of %d bytes, after the end: %t", id, len(c.GetData()), end)
		}
		all.Write(c.GetData())
		end = c.GetEnd()
	}
	return all.String(), len(f.chunks[id]), end
}

// runs are those that the chunks of a watch were of, each once.
func (f *fakeOutputs) runs(id string) (runs []uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.chunks[id] {
		runs = append(runs, c.GetRun())
	}
	return slices.Compact(runs)
}

func (f *fakeOutputs) expect(t *testing.T, id, want string, wantEnd bool) {
	t.Helper()
	if text, _, end := f.shown(t, id); text != want || end != wantEnd {
		t.Errorf("%s: %d bytes %.80q came, end %t; want %d bytes %.80q, end %t", id, len(text), text, end, len(want), want, wantEnd)
	}
}

// serveLive runs Outputs for the time of the test, which is in a bubble.
func serveLive(t *testing.T) (*Outputs, *fakeOutputs) {
	t.Helper()
	f := newFakeOutputs()
	l := New(f, f.report, zap.NewNop())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { l.Run(ctx, "acme", []map[string]string{{"position": "0"}, {"position": "1"}}) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return l, f
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	check(t, err)
	_, err = f.WriteString(text)
	check(t, err)
	check(t, f.Close())
}

// TestOutputIsShownAsItGrows: output is shown as it comes, from the requested offset to the end. A
// reader may come before the command and before its files.
func TestOutputIsShownAsItGrows(t *testing.T) {
	dir := t.TempDir()
	stdout, stderr := filepath.Join(dir, "stdout"), filepath.Join(dir, "stderr")
	synctest.Test(t, func(t *testing.T) {
		l, f := serveLive(t)
		f.watches <- &livepb.Watch{Id: "out", Worker: 1, Action: "a/1", Offset: 2}
		f.watches <- &livepb.Watch{Id: "err", Worker: 1, Action: "a/1", Stderr: true}
		f.watches <- &livepb.Watch{Id: "other", Worker: 1, Action: "b/1"}
		f.watches <- &livepb.Watch{Id: "elsewhere", Worker: 0, Action: "a/1"}
		time.Sleep(3 * askInterval)
		if _, asked, _ := f.shown(t, "out"); asked < 2 {
			t.Errorf("the worker asked %d times whether anybody still reads", asked)
		}
		run := l.Begin(1, Printing{Action: "a/1", Run: 1, Stdout: stdout, Stderr: stderr})
		time.Sleep(askInterval)
		f.expect(t, "out", "", false)
		appendTo(t, stdout, "abcdef")
		time.Sleep(2 * growthInterval)
		f.expect(t, "out", "cdef", false)
		much := strings.Repeat("0123456789", 20_000)
		appendTo(t, stdout, much)
		appendTo(t, stderr, "warning")
		run.End()
		time.Sleep(2 * growthInterval)
		f.expect(t, "out", "cdef"+much, false)
		run.Decide(true)
		synctest.Wait()
		f.expect(t, "out", "cdef"+much, true)
		f.expect(t, "err", "warning", true)
		f.expect(t, "other", "", false)
		f.expect(t, "elsewhere", "", false)
	})
}

// TestRunThatDoesNotCount: a command runs again. Readers must learn of that before the next run
// begins, and get the next run's output from its beginning, including a reader that comes with an
// offset in the first run's output.
func TestRunThatDoesNotCount(t *testing.T) {
	dir := t.TempDir()
	path := func(run, stream string) string { return filepath.Join(dir, run+stream) }
	synctest.Test(t, func(t *testing.T) {
		l, f := serveLive(t)
		f.watches <- &livepb.Watch{Id: "out", Action: "a/1"}
		f.watches <- &livepb.Watch{Id: "err", Action: "a/1", Stderr: true}
		first := l.Begin(0, Printing{Action: "a/1", Run: 1, Stdout: path("1", "out"), Stderr: path("1", "err")})
		appendTo(t, path("1", "out"), "wrong, and longer")
		appendTo(t, path("1", "err"), "?")
		time.Sleep(2 * growthInterval)
		first.End()
		first.Decide(false)
		synctest.Wait()
		check(t, os.Remove(path("1", "out")))
		for _, id := range []string{"out", "err"} {
			if got := f.runs(id); !slices.Equal(got, []uint32{1, 2}) {
				t.Errorf("%s: the chunks are of runs %v before the second has begun", id, got)
			}
		}
		f.watches <- &livepb.Watch{Id: "late", Action: "a/1", Offset: 5, Run: 1}
		f.watches <- &livepb.Watch{Id: "in time", Action: "a/1", Offset: 2, Run: 2}
		second := l.Begin(0, Printing{Action: "a/1", Run: 2, Stdout: path("2", "out"), Stderr: path("2", "err")})
		appendTo(t, path("2", "out"), "right")
		appendTo(t, path("2", "err"), "also right")
		time.Sleep(2 * growthInterval)
		second.End()
		second.Decide(true)
		synctest.Wait()
		f.expect(t, "out", "wrong, and longer"+"right", true)
		f.expect(t, "err", "?also right", true)
		f.expect(t, "late", "right", true)
		f.expect(t, "in time", "ght", true)
		if got := f.runs("late"); got[len(got)-1] != 2 {
			t.Errorf("who comes late is told of runs %v", got)
		}
	})
}

// TestTooManyWatches: a worker shows a maximum number of streams at once, and refuses another one
// until a reader has gone.
func TestTooManyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, f := serveLive(t)
		refused := func(id string) bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.chunks[id]) > 0 && f.chunks[id][0].GetRefused()
		}
		f.done["0"] = true
		for i := range maxWatches + 1 {
			f.watches <- &livepb.Watch{Id: string(rune('0' + i)), Action: "a/1"}
			synctest.Wait()
			if got := refused(string(rune('0' + i))); got != (i == maxWatches) {
				t.Errorf("watch %d is refused: %t", i, got)
			}
		}
		time.Sleep(2 * askInterval) // the first one learns that no reader is left
		f.watches <- &livepb.Watch{Id: "late", Action: "a/1"}
		synctest.Wait()
		if refused("late") {
			t.Error("a watch is refused though one has gone")
		}
	})
}

// The scheduler is asked again when the call breaks, ever more slowly, but not when it
// does not know the service.
func TestLiveCallBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeOutputs()
		began, calls := time.Now(), 0
		f.fault = func() error {
			if calls++; calls == 10 {
				return status.Error(codes.Unimplemented, "what is that?")
			}
			return status.Error(codes.Unavailable, "away")
		}
		New(f, f.report, zap.NewNop()).Run(t.Context(), "acme", nil)
		if took := time.Since(began); calls != 10 || took < 5*maxBackoff || took > 10*maxBackoff {
			t.Errorf("%d calls in %s", calls, took)
		}
	})
	// Without a scheduler that knows it nothing is kept.
	l := New(nil, nil, zap.NewNop())
	l.Run(t.Context(), "acme", nil)
	run := l.Begin(0, Printing{})
	run.Decide(!run.End())
	if len(l.running) > 0 {
		t.Error("a command is kept for nobody")
	}
}

// TestLiveTell: a worker sends a report once it can, and again when the report has changed.
func TestLiveTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeOutputs()
		f.early = 2
		ctx, cancel := context.WithCancel(t.Context())
		var worker sync.WaitGroup
		worker.Go(func() { New(f, f.report, zap.NewNop()).Run(ctx, "acme", nil) })
		told := func() (reads []int64) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, r := range f.told {
				reads = append(reads, r.GetFilesLocal())
			}
			return reads
		}
		time.Sleep(3 * tellInterval)
		if got := told(); !slices.Equal(got, []int64{0}) {
			t.Errorf("told %v", got)
		}
		f.mu.Lock()
		f.read = 7
		f.mu.Unlock()
		time.Sleep(tellInterval)
		if got := told(); !slices.Equal(got, []int64{0, 7}) {
			t.Errorf("told %v", got)
		}
		cancel()
		worker.Wait()
	})
}

// TestWatched: a worker knows whether a reader has requested the output of a command. The reader
// may continue after the command's end.
func TestWatched(t *testing.T) {
	l := New(livepb.NewOutputsClient(nil), nil, zap.NewNop()) // it is not called
	for _, asks := range []string{"", "another", "this"} {
		run := l.Begin(3, Printing{Action: "this"})
		l.find(&livepb.Watch{Worker: 3, Action: asks})
		l.find(&livepb.Watch{Worker: 2, Action: "this"})
		if watched := run.End(); watched != (asks == "this") {
			t.Errorf("asked for action %q: watched %v", asks, watched)
		}
	}
}

// TestSchedulerCalls has the scheduler want to hear of one position.
func TestSchedulerCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, f := serveLive(t)
		called := make(chan int, 1)
		l.OnCall(func(position int) { called <- position })
		f.watches <- &livepb.Watch{Worker: 1, Call: true}
		if position := <-called; position != 1 {
			t.Errorf("position %d is to call", position)
		}
	})
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
