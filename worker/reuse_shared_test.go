package worker

import (
	"context"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/prefetch"
	reusepb "github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records/sharedruns"
	"github.com/forerunner-build/forerunner/vfs"
	likeness "github.com/forerunner-build/forerunner/worker/machine"
	"github.com/forerunner-build/forerunner/worker/reuse"
)

// forget empties the store, as if the worker had run nothing yet.
func (s *reuseStore) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = nil
}

// sharing is a worker's connection to a scheduler that keeps runs for all workers. The test can
// hold up a search.
type sharing struct {
	own  *reuseStore
	kept chan struct{} // gets a token for each run that all have

	mu    sync.Mutex
	asked chan struct{} // closed when a worker asks; guarded by mu
	held  chan struct{} // closed when he gets an answer; nil: at once; guarded by mu
}

// share makes a worker share runs, with a storage that has the blobs that read returns.
func (s *sharing) share(t *testing.T, o *Options, read func(context.Context, digest.Digest) ([]byte, error)) {
	t.Helper()
	conn := serve(t, func(g *grpc.Server) {
		sharedruns.Register(g, sharedruns.Options{
			Store: &reuseStore{},
			Read:  func(ctx context.Context, _ string, d digest.Digest) ([]byte, error) { return read(ctx, d) },
		})
	}, grpc.UnaryInterceptor(s.intercept))
	shared := reuse.OpenShared(reuse.SharedOptions{
		Client: reusepb.NewAccountsClient(conn), Machine: likeness.NewNamed("alike", nil), Logger: zap.NewNop(),
	})
	t.Cleanup(func() { shared.Close(context.Background()) })
	o.Reuse, o.Shared, o.Setting.Program = reuse.New(s.own), shared, "test"
}

func (s *sharing) intercept(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if _, finds := r.(*reusepb.FindRequest); finds {
		s.mu.Lock()
		asked, held := s.asked, s.held
		s.asked = nil
		s.mu.Unlock()
		if asked != nil {
			close(asked)
		}
		if held != nil {
			<-held
		}
	}
	answer, err := next(ctx, r)
	if _, keeps := r.(*reusepb.KeepRequest); keeps && err == nil {
		s.kept <- struct{}{}
	}
	return answer, err
}

// hold makes the next search for a run wait until release is called. asked is closed when it waits.
func (s *sharing) hold() (asked <-chan struct{}, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.held = make(chan struct{}), make(chan struct{})
	return s.asked, sync.OnceFunc(func() { close(s.held) })
}

// TestSharedRuns spares a worker a run that another one has made, with the same bytes, and makes it
// run what that one has not seen. A profile foresees a file that the spared run would not read:
// nothing is fetched for it while the others are being asked.
func TestSharedRuns(t *testing.T) {
	needRoot(t)
	for range 5 {
		if spares(t) {
			return
		}
	}
	t.Error("the worker never asked for runs of others")
}

// spares runs TestSharedRuns with a farm of its own. It returns false if the machine was so busy
// that an answer took longer than a second, after which the worker does not ask for a while.
func spares(t *testing.T) bool {
	t.Helper()
	s := &sharing{own: &reuseStore{}, kept: make(chan struct{}, 10)}
	var f *farm
	profiles := prefetch.NewProfiles(&memoryStore{}, prefetch.ProfilesOptions{})
	f = newFarmWith(t, vfs.Options{Method: vfs.FUSE}, profiles, farmOptions{change: func(o *Options) {
		s.share(t, o, func(ctx context.Context, d digest.Digest) ([]byte, error) { return f.storage.ReadBlob(ctx, d) })
	}})
	in := tree{"which": "a", "a": "read at first", "b": "read then"}
	cat := func(in tree) spec { return spec{inputs: in, shell: "cat $(cat which) > out", paths: []string{"out"}} }
	var was *repb.ExecuteResponse
	for _, which := range []string{"a", "b"} {
		in["which"] = which
		was = f.run(t, cat(in))
		assertOK(t, was)
		select {
		case <-s.kept:
		case <-time.After(time.Minute):
			return false
		}
	}

	s.own.forget()
	in["a"] = "changed, and read no more"
	asked, release := s.hold()
	defer release()
	done := make(chan *repb.ExecuteResponse, 1)
	go func() { done <- f.run(t, cat(in)) }()
	select {
	case <-asked:
	case <-done:
		return false
	}
	// Give a wrong fetch the time to begin.
	changed := digestOfBytes(in["a"].(string))
	for end := time.Now().Add(time.Second / 8); f.reads.count(changed) == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	release()
	r := <-done
	if reusedFrom(t, r) == nil || r.GetResult().GetOutputFiles()[0].GetDigest().GetHash() != was.GetResult().GetOutputFiles()[0].GetDigest().GetHash() {
		t.Errorf("the command was run, or has another result: %v", r)
	}
	if f.reads.count(changed) > 0 {
		t.Error("a file was fetched for a command that was not run")
	}

	s.own.forget()
	in["b"] = "changed, and read"
	if r := f.run(t, cat(in)); reusedFrom(t, r) != nil {
		t.Error("a run stands for one that reads something else")
	}
	return true
}
