package migration

import (
	"context"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/test/programs"
)

// ranByBuildbarn is the output of every command on a stand-in for bb_worker, which runs no
// commands.
const ranByBuildbarn = "buildbarn\n"

// A worker stands in for bb_worker with one thread: without a size class, and without anything that
// only Forerunner's workers send. It takes an action for each token of takes.
type worker struct {
	*programs.Test
	takes     chan struct{}
	id        string
	platform  *repb.Platform
	scheduler remoteworker.OperationQueueClient
	results   repb.ActionCacheClient
	stop      func() // ends it, and returns when it has
}

// startWorker starts a stand-in for bb_worker, which ends with the test.
func startWorker(f *programs.Test, id, scheduler, storage string, platform *repb.Platform) *worker {
	f.Helper()
	w := &worker{
		Test: f, id: id, platform: platform, takes: make(chan struct{}, 1),
		scheduler: remoteworker.NewOperationQueueClient(f.Dial(scheduler)), results: repb.NewActionCacheClient(f.Dial(storage)),
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.run(ctx) })
	w.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	f.Cleanup(w.stop)
	return w
}

// run takes actions until ctx ends.
func (w *worker) run(ctx context.Context) {
	idle := &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}}}
	for state := idle; ctx.Err() == nil; {
		if state == idle {
			select {
			case <-w.takes:
			case <-ctx.Done():
				return
			}
		}
		response, err := w.call(ctx, state)
		switch executing := response.GetDesiredState().GetExecuting(); {
		case err != nil:
			if ctx.Err() == nil && status.Code(err) != codes.Unavailable {
				w.Errorf("%s: the scheduler answers %v", w.id, err)
				return
			}
			if state == idle {
				w.takes <- struct{}{} // for another try
			}
			time.Sleep(programs.PollInterval) // it restarts
		case executing != nil:
			if state, err = w.execute(ctx, executing); err != nil && ctx.Err() == nil {
				w.Errorf("%s: %v", w.id, err)
				return
			}
		case state == idle:
			w.takes <- struct{}{}
		default:
			state = idle
		}
	}
}

func (w *worker) call(ctx context.Context, state *remoteworker.CurrentState) (*remoteworker.SynchronizeResponse, error) {
	return w.scheduler.Synchronize(ctx, &remoteworker.SynchronizeRequest{
		WorkerId: map[string]string{"hostname": w.id, "thread": "0"}, Platform: w.platform, CurrentState: state,
		PreferBeingIdle: state.GetExecuting().GetCompleted() != nil,
	}, grpc.WaitForReady(true))
}

// execute reports an action as its stages come, and returns the last report, with the result.
func (w *worker) execute(ctx context.Context, desired *remoteworker.DesiredState_Executing) (*remoteworker.CurrentState, error) {
	if !desired.GetAction().GetTimeout().IsValid() {
		w.Errorf("%s: the timeout of an action is %v", w.id, desired.GetAction().GetTimeout())
	}
	state := func(s *remoteworker.CurrentState_Executing) *remoteworker.CurrentState {
		s.ActionDigest = desired.GetActionDigest()
		return &remoteworker.CurrentState{WorkerState: &remoteworker.CurrentState_Executing_{Executing: s}}
	}
	running := state(&remoteworker.CurrentState_Executing{
		ExecutionState: &remoteworker.CurrentState_Executing_Running{Running: &emptypb.Empty{}},
	})
	response, err := w.call(ctx, running)
	if err != nil {
		return running, err
	}
	if response.GetDesiredState() != nil {
		w.Errorf("%s: instead of what it runs, the scheduler wants %v", w.id, response.GetDesiredState())
	}
	result := &repb.ActionResult{StdoutRaw: []byte(ranByBuildbarn), ExecutionMetadata: &repb.ExecutedActionMetadata{Worker: w.id}}
	if !desired.GetAction().GetDoNotCache() {
		_, err := w.results.UpdateActionResult(ctx, &repb.UpdateActionResultRequest{
			ActionDigest: desired.GetActionDigest(), ActionResult: proto.CloneOf(result),
		})
		if err != nil {
			return running, err
		}
	}
	return state(&remoteworker.CurrentState_Executing{
		ExecutionState: &remoteworker.CurrentState_Executing_Completed{Completed: &repb.ExecuteResponse{Result: result}},
	}), nil
}
