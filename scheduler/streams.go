package scheduler

import (
	"context"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/scheduler/core"
)

const (
	// askAgain is when a worker is asked again that shows nothing, or has been gone.
	askAgain = 500 * time.Millisecond
	// lastWords is how long the rest of a stream is waited for when its operation is done.
	lastWords = time.Second
)

// A streamService adds to a ByteStream what commands print while they run.
type streamService struct {
	bytestream.ByteStreamServer
	operations *operations
	live       *liveOutputs
}

// Read waits until the operation runs and ends when its command has. If the action
// is run again it goes on in the new run's output, at the same offset. What was
// too late or too slow to be seen ends it with ABORTED: it is in the result.
// read_limit, other than 0, is not supported.
func (s streamService) Read(req *bytestream.ReadRequest, stream bytestream.ByteStream_ReadServer) error {
	name, stderr, ok := names.ParseStream(req.GetResourceName())
	if !ok {
		return s.ByteStreamServer.Read(req, stream)
	}
	if req.GetReadOffset() < 0 || req.GetReadLimit() != 0 {
		return status.Error(codes.InvalidArgument, "read a stream of output from an offset that is not negative, without a limit")
	}
	st, box, done, err := s.operations.watch(stream.Context(), name)
	if err != nil {
		return err
	}
	defer done()
	v := &view{
		live: s.live, send: stream.Send,
		watch: &live.Watch{Action: st.Digest.String(), Stderr: stderr, Offset: req.GetReadOffset()},
	}
	defer func() { s.live.close(v.reader) }()
	return v.run(stream.Context(), &st, box)
}

// A view is one Read of a stream of output.
type view struct {
	live   *liveOutputs
	send   func(*bytestream.ReadResponse) error
	watch  *live.Watch // with the present offset
	reader *reader     // nil: no worker was asked
	// attempts and worker say which run is seen; heard, that all of it was.
	attempts int
	worker   string
	heard    bool
}

// run sends chunks until the operation is done.
func (v *view) run(ctx context.Context, st *core.Status, box *mailbox) error {
	ticker := time.NewTicker(askAgain)
	defer ticker.Stop()
	var late <-chan time.Time // once the operation is done
	if err := v.follow(st); err != nil {
		return err
	}
	for {
		var chunks <-chan *live.Chunk
		var gone <-chan struct{}
		if v.reader != nil {
			chunks, gone = v.reader.chunks, v.reader.gone
		}
		var err error
		select {
		case c := <-chunks:
			err = v.take(c)
		case <-gone:
			v.reopen()
		case <-box.full:
			latest, open := box.take()
			switch {
			case latest != nil:
				st = latest
				err = v.follow(st)
			case !open:
				err = errStopped()
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
			return errUnknownOperation(st.Name)
		}
		if st.Done() && v.heard {
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

func errUnseen() error {
	return status.Error(codes.Aborted, "the operation ended before all of its output was seen: it is in its result")
}

// follow asks the worker that has the operation now, unless it was asked.
func (v *view) follow(st *core.Status) (err error) {
	if st.Stage != repb.ExecutionStage_EXECUTING {
		return nil
	}
	if st.Attempts != v.attempts || st.Worker != v.worker {
		v.reopen()
		v.attempts, v.worker, v.heard = st.Attempts, st.Worker, false
	}
	if v.reader == nil && !v.heard {
		w := &live.Watch{Action: v.watch.Action, Stderr: v.watch.Stderr, Offset: v.watch.Offset}
		v.reader, err = v.live.open(st.Worker, w)
	}
	return err
}

// reopen gives the reader up, so that follow opens another one.
func (v *view) reopen() {
	v.live.close(v.reader)
	v.reader = nil
}

// take sends a chunk on.
func (v *view) take(c *live.Chunk) error {
	if c.GetRefused() {
		return status.Error(codes.ResourceExhausted, "the worker serves as many streams as it can")
	}
	if len(c.GetData()) > 0 {
		if err := v.send(&bytestream.ReadResponse{Data: c.GetData()}); err != nil {
			return err
		}
		v.watch.Offset += int64(len(c.GetData()))
	}
	if c.GetEnd() {
		v.heard = true
		v.reopen()
	}
	return nil
}
