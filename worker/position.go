package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/worker/health"
	"github.com/forerunner-build/forerunner/worker/pipeline"
)

const (
	// A scheduler that does not answer is called again after minBackoff, then after twice as long,
	// up to maxBackoff; each time with jitter over the upper half. A restarting scheduler waits as
	// long (its settle).
	minBackoff, maxBackoff = 100 * time.Millisecond, 2 * time.Second
	// The scheduler's clock sets the time of the next call. The worker calls after maxSilence at
	// the latest, and not more often than minSilence, even if this machine's clock is wrong.
	maxSilence, minSilence = 10 * time.Second, time.Second
	// stageDelay is how long an action continues before the scheduler learns its new stage. A
	// shorter stage is over before it could be seen.
	stageDelay = 20 * time.Millisecond
	// reportTimeout bounds a call that the scheduler may not hold.
	reportTimeout = 30 * time.Second
	// heldTimeout limits a call that the scheduler may hold: Forerunner's for 30 s, Buildbarn's for
	// a minute. A scheduler that holds it longer hangs.
	heldTimeout = 90 * time.Second
	// leaveTimeout bounds the last words of a position that drains.
	leaveTimeout = 5 * time.Second
	// abortedLeaveTimeout limits the calls of a position that gave up.
	abortedLeaveTimeout = 300 * time.Millisecond
	// everybodyTakes is a message size that every server accepts: the smallest default limit.
	everybodyTakes = 4 << 20
	// relaunchTimeout bounds how long a launcher may take to be replaced, which the client of the
	// action that lost it waits for.
	relaunchTimeout = 5 * time.Second
)

// A position is one identity of the worker: it takes one action at a time
// through the pipeline. There are as many as the pipeline has places.
type position struct {
	w     *Worker
	id    map[string]string
	index int
	log   *zap.Logger
	count int // actions started, to name their folders
	// next is the permit of the action to come; nil: it has none.
	next *pipeline.Permit
	// work is the folder of the action to come; nil: it makes one.
	work *workFolder
	// called has a token when the scheduler wants a call now.
	called chan struct{}
	// peers are those of the scheduler's last answer.
	peers []string
	// grant is the one of that answer, to write the result of its action; takesResult says that the
	// scheduler writes it.
	grant       string
	takesResult bool
	// result has the headers of the last report that ask the scheduler to write the result in it.
	result []string
	// suffix is the instance_name_suffix of the action in the last report; nil: it has none.
	suffix *string
}

// A task is the action that a position runs.
type task struct {
	desired *remoteworker.DesiredState_Executing
	command []byte   // the encoded Command from the scheduler; nil: it sent none
	peers   []string // addresses of peers to ask
	grant   string   // shown to storage with the result; empty: none
	// resultGoes: the scheduler writes the result to the action cache.
	resultGoes bool
	permit     *pipeline.Permit
	cancel     context.CancelFunc
	done       chan struct{} // closed when the response is there
	changed    chan struct{} // gets a token when the stage changes

	mu    sync.Mutex
	state *remoteworker.CurrentState_Executing // guarded by mu
	kept  bool                                 // its slot is for its replacement; guarded by mu
	fn    string                               // of a result for the scheduler to write, as ResultHeader has it; guarded by mu
}

// enter records the stage that the action is in now.
func (t *task) enter(state *remoteworker.CurrentState_Executing) {
	state.ActionDigest = t.desired.GetActionDigest()
	t.mu.Lock()
	t.state = state
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default: // a token that is still there means the same
	}
}

// current is the state of the action now, which may be another one at once; nil without an action.
func (t *task) current() *remoteworker.CurrentState_Executing {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state
}

// leave gives the permit up, unless it is a slot that is kept.
func (t *task) leave() {
	t.mu.Lock()
	kept := t.kept
	t.mu.Unlock()
	switch {
	case t.permit == nil:
	case kept && t.permit.Slot() != nil:
		t.permit.Vacate()
	default:
		t.permit.Leave()
	}
}

// is reports whether the scheduler wants the task. The same action of another instance name is
// another one: its client may not see the outputs of this one.
func (t *task) is(wanted *remoteworker.DesiredState_Executing) bool {
	return proto.Equal(t.desired.GetActionDigest(), wanted.GetActionDigest()) &&
		t.desired.GetDigestFunction() == wanted.GetDigestFunction() &&
		t.desired.GetInstanceNameSuffix() == wanted.GetInstanceNameSuffix()
}

func (t *task) completed() bool { return t.current().GetCompleted() != nil }

// shorten puts an error in the place of a response that made a report larger than the scheduler
// takes, which it would refuse as often as it came.
func (t *task) shorten(report *remoteworker.SynchronizeRequest, err error) {
	size := proto.Size(report)
	if status.Code(err) != codes.ResourceExhausted || size <= everybodyTakes || report.GetCurrentState().GetExecuting().GetCompleted() == nil {
		return
	}
	t.enter(&remoteworker.CurrentState_Executing{
		ExecutionState: &remoteworker.CurrentState_Executing_Completed{Completed: &repb.ExecuteResponse{
			Result: &repb.ActionResult{},
			Status: status.Newf(codes.FailedPrecondition, "the result is too large for a message: with its %d bytes the "+
				"scheduler did not take it (%v); have outputs in directories instead", size, err).Proto(),
		}},
	})
}

// refused reports whether the action has ended without a response: it is not for this worker, and
// another one must run it.
func (t *task) refused() bool {
	select {
	case <-t.done:
		return !t.completed()
	default:
		return false
	}
}

// run keeps the scheduler informed and follows its instructions, until draining is over (no action
// runs and the last result was delivered) or abort.
func (p *position) run(ctx, abort context.Context) {
	var current *task
	backoff := minBackoff
	for {
		draining := ctx.Err() != nil
		if draining && (current == nil || abort.Err() != nil) {
			p.stop(current)
			p.giveBack()
			p.work.remove(p.log)
			p.leave(abort)
			return
		}
		report := p.report(current, draining)
		asked := time.Now()
		response, err := p.synchronize(ctx, abort, report)
		if err != nil && (!draining && ctx.Err() != nil || errors.Is(err, health.ErrUnfit)) {
			continue // the drain cut the call off, or a fault of the machine
		}
		p.reportConnection(err)
		if err != nil {
			p.w.metrics.unreachable.Inc()
			current.shorten(report, err)
			pause := backoff/2 + rand.N(backoff/2)
			p.wait(ctx, abort, current, pause)
			backoff = min(2*backoff, maxBackoff)
			continue
		}
		backoff = minBackoff
		refused := current != nil && current.refused()
		switch {
		case report.GetCurrentState().GetExecuting().GetCompleted() != nil:
			<-current.done // delivered; its resources are released now
			current = nil
		case refused:
			current = nil // the scheduler knows that it was here, and learns at once that it is gone
		}
		switch desired := response.GetDesiredState().GetWorkerState().(type) {
		case *remoteworker.DesiredState_Executing_:
			if current == nil || !current.is(desired.Executing) {
				p.stopFor(current)
				current = p.start(abort, desired.Executing)
			}
		case *remoteworker.DesiredState_Idle:
			p.stop(current)
			current = nil
		}
		switch {
		case refused:
		case current != nil || p.next == nil:
			p.wait(ctx, abort, current, silence(time.Until(response.GetNextSynchronizationAt().AsTime())))
		case report.GetCurrentState().GetIdle() != nil: // the scheduler should have held the call
			p.wait(ctx, abort, nil, minSilence-time.Since(asked))
		}
	}
}

// reportConnection reports a change in how calls to the scheduler end, of any position.
func (p *position) reportConnection(err error) {
	code := uint32(status.Code(err))
	if err == nil {
		p.w.refusal.Store(nil)
	} else {
		p.w.refusal.Store(&err)
	}
	switch last := p.w.answered.Swap(code); {
	case last == code:
	case err != nil:
		p.log.Warn("scheduler does not answer; retrying", zap.Error(err))
	default:
		p.log.Info("scheduler answers again")
	}
}

// silence returns how long to wait when the scheduler wants the next call in d.
func silence(d time.Duration) time.Duration {
	if d <= 0 {
		return minSilence
	}
	return min(d, maxSilence)
}

// full reports whether the position must get no further action. One without an action, or with an
// ended one, needs a permit for the next, and a worker that can run it.
func (p *position) full(state *remoteworker.CurrentState_Executing, draining bool) bool {
	if draining {
		p.giveBack()
		return true
	}
	if state != nil && state.GetCompleted() == nil {
		return false
	}
	if p.w.health.Rests() != nil {
		p.giveBack()
		return true
	}
	if p.next == nil {
		p.next = p.w.pipeline.TryEnter()
	}
	return p.next == nil
}

// giveBack gives up the permit of the action to come.
func (p *position) giveBack() {
	if p.next != nil {
		p.next.Leave()
		p.next = nil
	}
}

// report describes the position and the state of its action. It reads that once: an action that ends
// between two looks would be reported as ended and followed by one without a permit.
func (p *position) report(current *task, draining bool) *remoteworker.SynchronizeRequest {
	executing := current.current()
	state := &remoteworker.CurrentState{
		WorkerState: &remoteworker.CurrentState_Idle{Idle: &emptypb.Empty{}},
	}
	p.suffix, p.result = nil, nil
	if executing.GetCompleted() != nil {
		p.result = current.resultHeaders()
	}
	if current != nil {
		p.suffix = proto.String(current.desired.GetInstanceNameSuffix())
		state.WorkerState = &remoteworker.CurrentState_Executing_{Executing: executing}
	}
	return &remoteworker.SynchronizeRequest{
		WorkerId:           p.id,
		InstanceNamePrefix: p.w.opts.InstancePrefix,
		Platform:           p.w.opts.Platform,
		SizeClass:          p.w.opts.SizeClass,
		CurrentState:       state,
		PreferBeingIdle:    p.full(executing, draining),
	}
}

// synchronize makes the call. A call that the scheduler may hold, because the position is idle,
// ends when the worker begins to drain, or to rest (health.ErrUnfit).
func (p *position) synchronize(
	ctx, abort context.Context, report *remoteworker.SynchronizeRequest,
) (*remoteworker.SynchronizeResponse, error) {
	executing := report.GetCurrentState().GetExecuting()
	if (executing == nil || executing.GetCompleted() != nil) && !report.GetPreferBeingIdle() {
		// Held when there is no further work. A call cut off is made again with
		// prefer_being_idle, so that a result arrives.
		call, done := p.w.health.Calling(ctx)
		defer done()
		bounded, cancel := context.WithTimeout(call, heldTimeout)
		defer cancel()
		response, err := p.call(bounded, report)
		if err != nil && errors.Is(context.Cause(call), health.ErrUnfit) {
			err = errors.Join(health.ErrUnfit, err)
		}
		return response, err
	}
	call, cancel := context.WithTimeout(abort, reportTimeout)
	defer cancel()
	return p.call(call, report)
}

// wait returns when there is news for the scheduler, of a stage with a delay; when the scheduler
// wants a call; when a position without an action has got a permit for one, or its worker has ended
// its rest; or after d.
func (p *position) wait(ctx, abort context.Context, current *task, d time.Duration) {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	var changed, done, fetch, rested <-chan struct{}
	var slots <-chan *pipeline.Slot
	if current == nil && p.next == nil && ctx.Err() == nil {
		if rested = p.w.health.Rests(); rested == nil {
			fetch, slots = p.w.pipeline.Entrance()
		}
	}
	if current != nil {
		changed = current.changed
		if !current.completed() {
			done = current.done
		}
	}
	drain := ctx.Done()
	if ctx.Err() != nil {
		drain = abort.Done()
	}
	for delayed := false; ; {
		select {
		case <-timer.C:
		case <-fetch:
			p.next = p.w.pipeline.Kept(nil)
		case s := <-slots:
			p.next = p.w.pipeline.Kept(s)
		case <-changed:
			if current.completed() {
				return
			}
			if !delayed {
				delayed = true
				timer.Reset(min(d, stageDelay))
			}
			continue
		case <-done:
		case <-rested:
		case <-p.called:
		case <-drain:
		}
		return
	}
}

// start begins an action in a goroutine, which stop or task.done waits for. The
// action gets the permit that is kept for it.
func (p *position) start(abort context.Context, desired *remoteworker.DesiredState_Executing) *task {
	ctx, cancel := context.WithCancel(abort)
	t := &task{
		desired: desired, command: takeCommand(desired), peers: p.peers, grant: p.grant, resultGoes: p.takesResult && p.w.opts.ResultsGo,
		cancel: cancel, permit: p.next,
		done: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	t.state = &remoteworker.CurrentState_Executing{
		ActionDigest:   desired.GetActionDigest(),
		ExecutionState: &remoteworker.CurrentState_Executing_Started{Started: &emptypb.Empty{}},
	}
	p.next = nil
	p.count++
	p.w.actions.Add(1)
	p.w.opts.Crew.Go(func() {
		defer close(t.done)
		defer cancel()
		defer p.w.actions.Add(-1)
		response, release := p.execute(ctx, t)
		if response != nil {
			t.enter(&remoteworker.CurrentState_Executing{
				ExecutionState: &remoteworker.CurrentState_Executing_Completed{Completed: response},
			})
		}
		// The client need not wait for the release, most of which is system calls that wait, and keep
		// a processor from the goroutine that reports.
		runtime.Gosched()
		release()
	})
	return t
}

// stop ends an action whose result is not wanted, and waits for its end.
func (p *position) stop(t *task) {
	if t == nil {
		return
	}
	t.cancel()
	<-t.done
}

// stopFor is stop, for an action that follows at once and for which the first one had to yield. It
// gets the slot before actions that wait for one with their inputs fetched.
func (p *position) stopFor(t *task) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.kept = p.next == nil
	kept := t.kept
	t.mu.Unlock()
	p.stop(t)
	if kept && t.permit.Slot() != nil {
		p.next = t.permit
	}
}

// leave tells the scheduler that this identity takes no more work, so that it need not find out. A
// failure is harmless.
func (p *position) leave(abort context.Context) {
	most := leaveTimeout
	if abort.Err() != nil {
		abort, most = context.WithoutCancel(abort), abortedLeaveTimeout
	}
	ctx, cancel := context.WithTimeout(abort, most)
	defer cancel()
	if _, err := p.call(ctx, p.report(nil, true)); err != nil {
		p.log.Debug("the last call to the scheduler failed", zap.Error(err))
	}
}

// relaunch replaces the launcher of a slot, so that the next action has a working one, even if the
// action that noticed was cancelled. If that fails, the next one tries again. The caller has the
// slot.
func (w *Worker) relaunch(ctx context.Context, s *pipeline.Slot) {
	if w.opts.Relaunch == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), relaunchTimeout)
	defer cancel()
	launcher, err := w.opts.Relaunch(ctx, s.Index)
	if err != nil {
		w.log.Error("launcher was not replaced; the next action on the slot tries again", zap.Int("slot", s.Index), zap.Error(err))
		return
	}
	s.Launcher = launcher
}

// The stages that an action enters on its way.
func fetchingInputs() *remoteworker.CurrentState_Executing {
	return &remoteworker.CurrentState_Executing{
		ExecutionState: &remoteworker.CurrentState_Executing_FetchingInputs{FetchingInputs: &emptypb.Empty{}},
	}
}

func runningCommand() *remoteworker.CurrentState_Executing {
	return &remoteworker.CurrentState_Executing{
		ExecutionState: &remoteworker.CurrentState_Executing_Running{Running: &emptypb.Empty{}},
	}
}

func uploadingOutputs() *remoteworker.CurrentState_Executing {
	return &remoteworker.CurrentState_Executing{
		ExecutionState: &remoteworker.CurrentState_Executing_UploadingOutputs{UploadingOutputs: &emptypb.Empty{}},
	}
}
