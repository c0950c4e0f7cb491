package live

import (
	"context"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/auth"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/engine"
	"github.com/forerunner-build/forerunner/scheduler/operation"
)

const (
	// askAgain is when a worker is asked again that shows nothing, or has been gone.
	askAgain = 500 * time.Millisecond
	// lastWords is how long to wait for the rest of a stream after its operation is done.
	lastWords = time.Second
	// maxRefused is how often a worker may refuse a stream, from one askAgain to the next.
	maxRefused = 10
)

// A Watch makes its caller follow an operation until done is called. Its errors are gRPC statuses.
type Watch func(ctx context.Context, name string) (st event.Status, box *engine.Mailbox, done func(), err error)

// ByteStream returns next, extended by the output of running commands, under the names in the
// metadata of their operations. Everything else goes to next.
func (l *Registry) ByteStream(next bytestream.ByteStreamServer, watch Watch) bytestream.ByteStreamServer {
	return streamService{next, watch, l}
}

// A streamService adds the output of running commands to a ByteStream.
type streamService struct {
	bytestream.ByteStreamServer
	watch    Watch
	registry *Registry
}

// Read waits until the operation runs, and ends when its command has ended. If the action starts
// again after the client has read something, Read ends with names.ErrStartedOver. If output was too
// late or too slow, it ends with ABORTED: the result has that output. It supports no read_limit
// other than 0.
func (s streamService) Read(req *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	name, stderr, ok := names.ParseStream(req.GetResourceName())
	if !ok {
		return s.ByteStreamServer.Read(req, stream)
	}
	if req.GetReadOffset() < 0 || req.GetReadLimit() != 0 {
		return status.Error(codes.InvalidArgument, "read a stream of output from an offset that is not negative, without a limit")
	}
	st, box, done, err := s.watch(stream.Context(), name)
	if err != nil {
		return err
	}
	defer done()
	v := &view{
		registry: s.registry, caller: auth.CallerOf(stream.Context()), send: stream.Send,
		watch: &live.Watch{Action: st.Digest.String(), Stderr: stderr, Offset: req.GetReadOffset()},
	}
	defer func() { s.registry.close(v.reader) }()
	return v.run(stream.Context(), &st, box)
}

// A view is one Read of a stream of output.
type view struct {
	registry *Registry
	caller   string
	send     func(*bytestream.ReadResponse) error
	watch    *live.Watch // with the present offset and run
	reader   *reader     // nil: no worker was asked
	// attempts and worker identify the run; complete is true if all of its output was read.
	attempts int
	worker   string
	complete bool
	refused  int // by the worker, one after the other
}

// run sends chunks until the operation is done.
func (v *view) run(ctx context.Context, st *event.Status, box *engine.Mailbox) error {
	ticker := time.NewTicker(askAgain)
	defer ticker.Stop()
	var late <-chan time.Time // once the operation is done
	if err := v.follow(st); err != nil {
		return err
	}
	for {
		var chunks <-chan *live.Chunk
		var gone, yielded <-chan struct{}
		if v.reader != nil {
			chunks, gone, yielded = v.reader.chunks, v.reader.gone, v.reader.yielded
		}
		var err error
		select {
		case c := <-chunks:
			err = v.take(c)
		case <-gone:
			v.reopen()
		case <-yielded:
			err = errYielded()
		case <-box.Full():
			latest, open := box.Take()
			switch {
			case latest != nil:
				st = latest
				err = v.follow(st)
			case !open:
				err = engine.ErrStopped()
			}
		case <-ticker.C:
			err = v.follow(st)
		case <-late:
			return errUnseen()
		case <-ctx.Done():
			err = status.FromContextError(ctx.Err()).Err()
		}
		if err != nil {
			return err
		}
		if st.Stage == repb.ExecutionStage_UNKNOWN {
			return operation.ErrUnknown(st.Name)
		}
		if st.Done() && v.complete {
			return nil
		}
		if st.Done() && v.reader == nil {
			return errUnseen()
		}
		if st.Done() && late == nil {
			late = time.After(lastWords)
		}
	}
}

func errYielded() error {
	return status.Error(codes.ResourceExhausted, "this stream was ended for other callers, which read fewer")
}

func errUnseen() error {
	return status.Error(codes.Aborted, "the operation ended before all of its output was seen: it is in its result")
}

// follow asks the worker that has the operation now, unless it was asked.
func (v *view) follow(st *event.Status) (err error) {
	if st.Stage != repb.ExecutionStage_EXECUTING {
		return nil
	}
	if st.Attempts != v.attempts || st.Worker != v.worker {
		v.reopen()
		if v.attempts != 0 {
			if err := v.startOver(0); err != nil {
				return err
			}
		}
		v.attempts, v.worker, v.complete = st.Attempts, st.Worker, false
	}
	if v.reader == nil && !v.complete {
		w := &live.Watch{Action: v.watch.Action, Stderr: v.watch.Stderr, Offset: v.watch.Offset, Run: v.watch.Run}
		v.reader, err = v.registry.open(st.Worker, v.caller, w)
	}
	return err
}

// startOver continues with another run, from its beginning, unless the reader already has output of
// the previous one.
func (v *view) startOver(run uint32) error {
	if v.watch.Offset > 0 {
		return names.ErrStartedOver()
	}
	v.watch.Run = run
	return nil
}

// reopen gives the reader up, so that follow opens another one.
func (v *view) reopen() {
	v.registry.close(v.reader)
	v.reader = nil
}

// take sends a chunk on.
func (v *view) take(c *live.Chunk) error {
	if c.GetRefused() { // it may not know yet that other readers have left
		v.reopen()
		if v.refused++; v.refused == maxRefused {
			return status.Error(codes.ResourceExhausted, "the worker serves as many streams as it can")
		}
		return nil
	}
	v.refused = 0
	switch run := c.GetRun(); {
	case run == 0 || run == v.watch.GetRun():
	case v.watch.GetRun() == 0:
		v.watch.Run = run
	default:
		if err := v.startOver(run); err != nil {
			return err
		}
	}
	if len(c.GetData()) > 0 {
		if err := v.send(&bytestream.ReadResponse{Data: c.GetData()}); err != nil {
			return err
		}
		v.watch.Offset += int64(len(c.GetData()))
	}
	if c.GetEnd() {
		v.complete = true
		v.reopen()
	}
	return nil
}
