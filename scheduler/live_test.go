package scheduler

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// readerStream is the far end of one Read; each chunk is taken from got.
type readerStream struct {
	grpc.ServerStream
	ctx context.Context
	got chan string
}

func (s readerStream) Context() context.Context { return s.ctx }

func (s readerStream) Send(r *bytestream.ReadResponse) error {
	select {
	case s.got <- string(r.GetData()):
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

// readOutput reads a stream of an operation, such as "stdout", from an offset on.
func (f *farm) readOutput(operation, stream string, offset int64, far readerStream) error {
	return f.server.ByteStream(&bytestream.UnimplementedByteStreamServer{}).Read(
		&bytestream.ReadRequest{ResourceName: "streams/" + operation + "/" + stream, ReadOffset: offset}, far)
}

// A printing is an action that prints, and the worker that runs it.
type printing struct {
	action *repb.Digest
	stream *stream
	name   string // of the operation
	worker *fakeWorker
	hello  *live.ServeRequest // of the worker
}

func startPrinting(t *testing.T, f *farm) printing {
	p := printing{action: f.storage.action("prints"), worker: f.worker("w")}
	p.stream = f.execute(t.Context(), &repb.ExecuteRequest{ActionDigest: p.action})
	p.name = p.stream.at(repb.ExecutionStage_QUEUED).GetName()
	p.worker.idle()
	p.hello = &live.ServeRequest{Workers: []*live.Identity{{WorkerId: p.worker.req.GetWorkerId()}}}
	return p
}

// TestOutputIsReadOverABrokenCall breaks the worker's call in the middle of a slow read. The worker
// must be asked to continue at the reader's position.
func TestOutputIsReadOverABrokenCall(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		p := startPrinting(t, f)
		client := live.NewOutputsClient(f.conn)
		calls, hangUp := context.WithCancel(t.Context())
		first := must(client.Serve(calls, p.hello))
		synctest.Wait()
		far := readerStream{ctx: t.Context(), got: make(chan string)}
		ended := make(chan error, 1)
		go func() {
			ended <- f.readOutput(p.name, "stdout", 2, far)
		}()
		watch := must(first.Recv())
		if watch.GetOffset() != 2 || watch.GetStderr() {
			t.Errorf("the worker is asked for %v", watch)
		}
		must(client.Push(t.Context(), &live.Chunk{Id: watch.GetId(), Data: []byte("abc")}))
		if got := <-far.got; got != "abc" {
			t.Errorf("read %q", got)
		}
		hangUp()
		synctest.Wait()
		second := must(client.Serve(t.Context(), p.hello))
		again := must(second.Recv())
		if again.GetOffset() != 5 {
			t.Errorf("the worker is asked to go on with %v", again)
		}
		if r := must(client.Push(t.Context(), &live.Chunk{Id: watch.GetId(), Data: []byte("abc")})); !r.GetDone() {
			t.Error("a watch of a call that broke goes on")
		}
		must(client.Push(t.Context(), &live.Chunk{Id: again.GetId(), Data: []byte("d"), End: true}))
		p.worker.completed(p.action, success) // although the reader has not taken "d" yet
		p.stream.done()
		if got := <-far.got; got != "d" {
			t.Errorf("read %q", got)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := f.readOutput(p.name, "stderr", 0, far); status.Code(err) != codes.NotFound {
			t.Errorf("after the end: %v", err)
		}
	})
}

// TestReadOfWhatNobodyWaitsFor ends when the operation does.
func TestReadOfWhatNobodyWaitsFor(t *testing.T) {
	inFarm(t, ServerOptions{Config: tuning.Config{ClientGrace: 10 * time.Second}}, func(t *testing.T, f *farm) {
		ctx, hangUp := context.WithCancel(t.Context())
		name := f.execute(ctx, &repb.ExecuteRequest{ActionDigest: f.storage.action("waits")}).at(repb.ExecutionStage_QUEUED).GetName()
		ended := make(chan error, 1)
		go func() {
			ended <- f.readOutput(name, "stdout", 0, readerStream{ctx: t.Context(), got: make(chan string)})
		}()
		synctest.Wait()
		hangUp()
		select {
		case err := <-ended:
			if status.Code(err) != codes.NotFound {
				t.Error(err)
			}
		case <-time.After(2 * f.server.requests.Config().ClientGrace):
			t.Error("it goes on after the operation was dropped")
			f.stop()
			<-ended
		}
	})
}

// TestOutputOfARunThatDoesNotCount has the worker run an action again, twice. A reader that has
// output of a void run must be told at once; other readers continue with the next run.
func TestOutputOfARunThatDoesNotCount(t *testing.T) {
	inFarm(t, ServerOptions{}, func(t *testing.T, f *farm) {
		p := startPrinting(t, f)
		client := live.NewOutputsClient(f.conn)
		calls := must(client.Serve(t.Context(), p.hello))
		synctest.Wait()
		far := readerStream{ctx: t.Context(), got: make(chan string, 1)}
		ended := make(chan error)
		read := func() *live.Watch {
			go func() { ended <- f.readOutput(p.name, "stdout", 0, far) }()
			return must(calls.Recv())
		}
		push := func(w *live.Watch, c *live.Chunk) {
			c.Id = w.GetId()
			must(client.Push(t.Context(), c))
		}
		watch := read()
		push(watch, &live.Chunk{Run: 1})
		push(watch, &live.Chunk{Run: 2}) // nothing of the first was seen
		push(watch, &live.Chunk{Run: 2, Data: []byte("wrong")})
		if got := <-far.got; got != "wrong" {
			t.Errorf("read %q", got)
		}
		push(watch, &live.Chunk{Run: 3})
		if err := <-ended; !names.IsStartedOver(err) {
			t.Errorf("the reader is told %v", err)
		}
		watch = read()
		if watch.GetOffset() != 0 {
			t.Errorf("who reads again is shown %v", watch)
		}
		push(watch, &live.Chunk{Run: 3, Data: []byte("right"), End: true})
		if got := <-far.got; got != "right" {
			t.Errorf("read %q", got)
		}
		p.worker.completed(p.action, success)
		p.stream.done()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
