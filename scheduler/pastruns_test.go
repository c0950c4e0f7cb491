package scheduler

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/record"
	"github.com/forerunner-build/forerunner/records/sharedruns"
	"github.com/forerunner-build/forerunner/scheduler/pastruns"
)

// sharedRuns are one record that workers share.
type sharedRuns map[record.Key][]byte

func (s sharedRuns) Get(_ context.Context, k record.Key) ([]byte, error) {
	if b, ok := s[k]; ok {
		return b, nil
	}
	return nil, record.ErrNotFound
}

func (s sharedRuns) Put(context.Context, record.Key, []byte) error { return nil }

// pastStorage has all outputs, and takes results.
type pastStorage struct{ *fakeStorage }

func (s pastStorage) FindMissing(context.Context, []digest.Digest) ([]digest.Digest, error) {
	return nil, nil
}

func (s pastStorage) PutActionResult(_ context.Context, d digest.Digest, r *repb.ActionResult) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results[d] = proto.CloneOf(r)
	return nil
}

// TestSpare executes actions of a command of which a run is known. No worker may get them, if one
// that may get them would reuse the run, and the client allows it.
func TestSpare(t *testing.T) {
	alike := strings.Repeat("x", 32)
	for name, c := range map[string]struct {
		like    string // the worker's circumstances
		drains  bool
		skips   bool
		edit    func(*repb.Action)
		reused  bool
		without bool // the scheduler has no Finder
	}{
		"alike":              {like: alike, reused: true},
		"not alike":          {like: strings.Repeat("y", 32)},
		"shares no runs":     {},
		"malformed":          {like: "x"},
		"takes no work":      {like: alike, drains: true},
		"client wants a run": {like: alike, skips: true},
		"not to be cached":   {like: alike, edit: func(a *repb.Action) { a.DoNotCache = true }},
		"switched off":       {like: alike, without: true},
	} {
		t.Run(name, func(t *testing.T) {
			runs, storage := sharedRuns{}, pastStorage{}
			finder, err := pastruns.New(pastruns.Options{
				SharedRuns: runs, Logger: zap.NewNop(), Storage: func(string, digest.Function) pastruns.Storage { return storage },
			})
			if err != nil {
				t.Fatal(err)
			}
			if c.without {
				finder = nil
			}
			inFarm(t, ServerOptions{PastRuns: finder}, func(t *testing.T, f *farm) {
				storage.fakeStorage = f.storage
				f.storage.putBytes(digest.SHA256, nil) // the input root
				d := f.storage.action("gcc", func(a *repb.Action, _ *repb.Command) {
					if c.edit != nil {
						c.edit(a)
					}
				})
				runs.add(t, f.storage, d, alike)
				w := f.worker("w")
				w.like = c.like
				w.req.PreferBeingIdle = c.drains
				w.req.CurrentState = &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}}}
				ctx, leave := context.WithCancel(t.Context())
				got := make(chan *remoteworker.DesiredState_Executing, 1)
				go func() {
					answer, _ := w.sync(ctx) // it fails if nothing comes until the end
					got <- answer.GetDesiredState().GetExecuting()
				}()
				synctest.Wait()
				s := f.execute(ctx, &repb.ExecuteRequest{ActionDigest: d, SkipCacheLookup: c.skips})
				m, _ := s.next()
				synctest.Wait()
				leave()
				if sent := <-got; (sent != nil) != (!c.reused && !c.drains) {
					t.Errorf("the worker got %v", sent)
				}
				if m.GetDone() != c.reused {
					t.Fatalf("it is done: %t, want %t", m.GetDone(), c.reused)
				}
				if !c.reused {
					return
				}
				response := &repb.ExecuteResponse{}
				if err := m.GetResponse().UnmarshalTo(response); err != nil {
					t.Fatal(err)
				}
				if !response.GetCachedResult() || string(response.GetResult().GetStdoutRaw()) != "earlier" || response.GetMessage() == "" {
					t.Errorf("response %v", response)
				}
				if lines := f.logs.FilterMessage(names.OperationFinished).FilterFieldKey("reuse").Len(); lines != 1 {
					t.Errorf("%d lines in the log say that it was reused", lines)
				}
				key, err := digest.FromProto(digest.SHA256, d)
				if err != nil {
					t.Fatal(err)
				}
				if result, err := f.storage.GetActionResult(t.Context(), key); err != nil || string(result.GetStdoutRaw()) != "earlier" {
					t.Errorf("the action cache has %v, %v", result, err)
				}
			})
		})
	}
}

// add adds a run of an action that read nothing but saw its input root.
func (s sharedRuns) add(t *testing.T, storage *fakeStorage, d *repb.Digest, circumstances string) {
	t.Helper()
	key, err := digest.FromProto(digest.SHA256, d)
	if err != nil {
		t.Fatal(err)
	}
	action := &repb.Action{}
	if err := proto.Unmarshal(must(storage.Read(t.Context(), key)), action); err != nil {
		t.Fatal(err)
	}
	reduced, _ := sharedruns.Reduced(digest.SHA256, action)
	s[sharedruns.Key("", reduced, []byte(circumstances))] = must(sharedruns.Encode(&reuse.Record{Runs: []*reuse.Run{{
		Action: digest.Of(digest.SHA256, []byte("earlier action")).Proto(), Worker: "w",
		Result: must(proto.Marshal(&repb.ActionResult{StdoutRaw: []byte("earlier")})), Root: &reuse.Directory{},
	}}}))
}
