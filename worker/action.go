package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/forerunner-build/forerunner/cas"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/cas/peer"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/ahead"
	"github.com/forerunner-build/forerunner/worker/fault"
	"github.com/forerunner-build/forerunner/worker/health"
	"github.com/forerunner-build/forerunner/worker/inputs"
	"github.com/forerunner-build/forerunner/worker/policy"
	"github.com/forerunner-build/forerunner/worker/reuse"
)

// An action is an action of the scheduler, from start to report.
type action struct {
	p        *position
	w        *Worker
	task     *task
	log      *zap.Logger
	fn       digest.Function
	digest   digest.Digest
	message  *repb.Action
	command  *command
	how      *policy.Execution
	instance string
	storage  *casclient.Client  // of the action's instance name and function
	peers    *peer.Fetcher      // before it; nil: there are none
	inputs   *fetch.ReadThrough // the worker's store, backed by these
	ahead    *ahead.Fetch       // nil: nothing is fetched ahead
	former   *reuse.Attempt     // nil: nothing is reused
	depart   func()             // lets another run of the same action begin; nil: it could already
	times    timeline
	health   health.Period // zero: it has no permit yet
	last     *run          // of its command, the one that counts; empty until begin has ended
}

// execute runs the action of t and returns the response for the client. Every fault becomes a
// status in that response; none affects the next action. The caller calls release when the response
// is on its way, before the next action. The response is nil for an action that another worker must
// run.
func (p *position) execute(ctx context.Context, t *task) (response *repb.ExecuteResponse, release func()) {
	a := &action{p: p, w: p.w, task: t, log: p.log, message: t.desired.GetAction()}
	a.last = a.newRun()
	a.times.begin(t.desired.GetQueuedTimestamp())
	response, err := a.runVouched(ctx)
	if a.failedByWorker(ctx, response, err) {
		err = errors.Join(health.ErrUnfit, err)
	}
	if errors.Is(err, errOtherPlatform) || errors.Is(err, health.ErrUnfit) {
		a.endRace()
		a.log.Warn("action was sent back to the scheduler", zap.Error(err))
		return nil, a.release
	}
	if err != nil {
		if response == nil {
			response = &repb.ExecuteResponse{}
		}
		response.Status = fault.Status(ctx, a.allMissing(ctx, err)).Proto()
		// It may quote a name, which may be anything, and must be a message again.
		response.Status.Message = strings.ToValidUTF8(response.Status.Message, "\ufffd")
	}
	if response.Result == nil {
		response.Result = &repb.ActionResult{}
	}
	response.Result.ExecutionMetadata = a.metadata(response.Result.ExecutionMetadata)
	if err == nil && a.mayCache(response) {
		a.keepResult(ctx, response.GetResult())
	}
	a.endRace()
	a.linkUncached(ctx, response)
	return response, func() {
		a.finish(ctx, response)
		a.release()
		_, reused := a.former.Reused()
		switch {
		case reused:
			a.rememberRun(ctx)
		case err != nil:
		case response.GetResult().GetExitCode() != 0:
			a.ahead.Judge(ctx)
		default:
			a.learn(ctx, a.mayCache(response))
		}
	}
}

// begin prepares the action for its input root. A response means that there is no need to run it.
func (a *action) begin(ctx context.Context) (*repb.ExecuteResponse, error) {
	if err := a.enter(ctx); err != nil {
		return nil, err
	}
	if err := a.accept(ctx); err != nil {
		return nil, err
	}
	if response := a.lookBack(ctx); response != nil {
		a.times.enter(stageReport)
		return response, nil
	}
	if a.mayBeReused() {
		a.ahead.Go()
	}
	return nil, nil
}

// seesReads reports whether reads of the command are visible.
func (a *action) seesReads() bool { return a.w.opts.Roots.Method() != vfs.HardLink }

// enter takes the action's permit, which is free unless the scheduler sends unrequested work.
func (a *action) enter(ctx context.Context) (err error) {
	if a.task.permit == nil {
		if a.task.permit, err = a.w.pipeline.Enter(ctx); err != nil {
			return err
		}
	}
	if err := a.task.permit.Begin(ctx); err != nil {
		return err
	}
	a.health = a.w.health.Begin()
	return nil
}

// accept checks the messages and finds out where blobs come from.
func (a *action) accept(ctx context.Context) error {
	desired := a.task.desired
	fn, err := digest.FunctionFromProto(desired.GetDigestFunction())
	if err != nil {
		return fault.Errorf(codes.InvalidArgument, "digest function: %w", err)
	}
	a.fn = fn
	if a.digest, err = digest.FromProto(fn, desired.GetActionDigest()); err != nil {
		return fault.Errorf(codes.InvalidArgument, "action digest: %w", err)
	}
	a.log = a.log.With(append(named(desired.GetAuxiliaryMetadata()), zap.String(names.ActionField, a.digest.String()))...)
	if err := a.refuse(); err != nil {
		return err
	}
	if a.depart, err = a.w.pipeline.Alone(ctx, a.digest); err != nil {
		return err
	}
	if a.message.GetTimeout().AsDuration() <= 0 { // to the runner, 0 is no bound
		return fault.Errorf(codes.InvalidArgument, "action has no timeout above zero: the scheduler must set one")
	}
	a.instance = instance.Join(a.w.opts.InstancePrefix, desired.GetInstanceNameSuffix())
	a.storage = a.w.opts.Storage.WithInstance(a.instance, fn)
	a.inputs = a.readThrough(a.instance)
	a.lookAhead(ctx)
	commandDigest, err := digest.FromProto(fn, a.message.GetCommandDigest())
	if err != nil {
		return fault.Errorf(codes.InvalidArgument, "command digest: %w", err)
	}
	raw, err := a.readCommand(ctx, commandDigest)
	if err != nil {
		return fmt.Errorf("read command %s: %w", commandDigest, err)
	}
	message := &repb.Command{}
	if err := proto.Unmarshal(raw, message); err != nil {
		return fault.Errorf(codes.InvalidArgument, "command %s cannot be decoded: %w", commandDigest, err)
	}
	asked := platformOf(a.message, message)
	if err := a.w.opts.serves(asked); err != nil {
		return err
	}
	if a.command, err = parseCommand(message); err != nil {
		return fault.Errorf(codes.InvalidArgument, "command %s: %w", commandDigest, err)
	}
	a.ahead.KnowCommand(a.command.args, a.command.WorkingDirectory)
	a.how, err = a.w.opts.Isolation.Plan(a.command.args, a.command.env, asked, a.p.index)
	return err
}

// platformOf is the platform that an action asks for; clients before API 2.2 name
// it in the command only.
func platformOf(action *repb.Action, command *repb.Command) *repb.Platform {
	if action.GetPlatform() != nil {
		return action.GetPlatform()
	}
	//lint:ignore SA1019 deprecated is what those clients send
	return command.GetPlatform()
}

// errOtherPlatform: an action is not for this worker.
var errOtherPlatform = errors.New("action is for another platform")

// serves returns errOtherPlatform for an action that does not ask for the required properties. The
// scheduler checks its other properties, some of which it may not match.
func (o *Options) serves(asked *repb.Platform) error {
	for _, own := range o.Require.GetProperties() {
		if !slices.ContainsFunc(asked.GetProperties(), func(p *repb.Platform_Property) bool {
			return p.GetName() == own.GetName() && p.GetValue() == own.GetValue()
		}) {
			return fmt.Errorf("%w: it does not ask for %s=%s, as actions for this worker must", errOtherPlatform, own.GetName(), own.GetValue())
		}
	}
	return nil
}

// mayCache reports whether a result may be cached: the command ended by itself with exit code 0,
// had room for all its files, and caching is allowed.
func (a *action) mayCache(response *repb.ExecuteResponse) bool {
	return !a.message.GetDoNotCache() && response.GetResult().GetExitCode() == 0 && response.GetStatus() == nil &&
		a.health.HadSpace() && !a.last.crowded
}

// linkUncached has the message of a result that is for no action cache lead to pages of Buildbarn,
// if there are any. That is for people, and changes nothing of how the action ended.
func (a *action) linkUncached(ctx context.Context, response *repb.ExecuteResponse) {
	if a.w.opts.Browser == nil || a.storage == nil || ctx.Err() != nil || a.mayCache(response) {
		return
	}
	message, err := a.w.opts.Browser.Store(ctx, a.storage, a.digest, response)
	if err != nil {
		a.log.Warn("uncached result was not stored for the browser", zap.Error(err))
		return
	}
	response.Message = message
}

// release takes the input root and the temporary files away, and gives up the permit.
func (a *action) release() {
	a.last.leave()
	if a.depart != nil {
		a.depart()
	}
	a.task.leave()
}

// finish counts the action, traces it, and writes its one line to the log.
func (a *action) finish(ctx context.Context, response *repb.ExecuteResponse) {
	code := codes.Code(response.GetStatus().GetCode())
	outcome := "ok"
	switch {
	case code != codes.OK:
		outcome = code.String()
	case a.last.used.Cause == runner.OutOfMemory:
		outcome = "out_of_memory"
	case response.GetResult().GetExitCode() != 0:
		outcome = "exit_code"
	}
	a.w.metrics.actions.WithLabelValues(outcome).Inc()
	fields := []zap.Field{
		zap.String(names.OutcomeField, outcome),
		zap.Int32(names.ExitCodeField, response.GetResult().GetExitCode()),
		zap.String(names.WorkerField, names.Pairs(names.WithoutPosition(a.p.id))),
	}
	for stage, d := range a.times.durations() {
		a.w.metrics.observe(stage, d)
		fields = append(fields, zap.Duration(stage, d.Round(time.Microsecond)))
	}
	if a.last.root != nil && a.seesReads() {
		fields = append(fields, zap.Int64("files_read", a.last.read.FilesRead), zap.Int64("bytes_read", a.last.read.BytesRead),
			zap.Int64("root_files", a.last.size.Files), zap.Int64("root_bytes", a.last.size.Bytes),
			zap.Bool("root_whole", a.last.size.Whole), zap.Duration("stall", a.last.stalled))
		if a.last.read.Incomplete {
			fields = append(fields, zap.Bool("reads_incomplete", true))
		}
	}
	fields = append(append(fields, a.last.used.Fields()...), a.ahead.Fields()...)
	fields = append(append(fields, a.former.Fields()...), a.peerFields()...)
	message := response.GetStatus().GetMessage()
	if message != "" {
		fields = append(fields, zap.String(names.ErrorField, message))
	}
	a.trace(ctx, outcome, message)
	a.log.Info(names.ActionFinished, fields...)
}

// named describes an action by the client's names, if the scheduler knows them.
func named(known []*anypb.Any) []zap.Field {
	for _, packed := range known {
		var m repb.RequestMetadata
		if packed.MessageIs(&m) && packed.UnmarshalTo(&m) == nil && m.GetTargetId()+m.GetActionMnemonic() != "" {
			return []zap.Field{zap.String(names.TargetField, m.GetTargetId()), zap.String(names.MnemonicField, m.GetActionMnemonic())}
		}
	}
	return nil
}

// failedByWorker reports whether the worker alone may be the cause of an action's failure: then
// another one must run it. A command's own exit code counts, too, as the disk may be the cause.
func (a *action) failedByWorker(ctx context.Context, response *repb.ExecuteResponse, err error) bool {
	failed := response.GetResult().GetExitCode() != 0 && a.last.used.Cause != runner.OutOfMemory
	if err != nil {
		failed = errors.Is(err, cas.ErrNoSpace) || errors.Is(err, cas.ErrUnwritable) || fault.Status(ctx, err).Code() == codes.Internal
	}
	if !failed {
		return false
	}
	own := []string{a.w.opts.WorkDir, a.w.opts.Store.Dir()}
	if a.last.root == nil { // no command has been in these yet
		own = append(own, a.w.opts.Roots.Folders()...)
	}
	return a.crowdedOut() || a.w.health.Blame(err, own...) || a.health.WasFaulty()
}

// crowdedOut reports whether the action may have lacked room that it did not take itself: most of
// the free space at its start.
func (a *action) crowdedOut() bool {
	much := a.health.Free() / 2
	return a.health.WasShort() && (a.last.root == nil || max(a.last.wrote, a.last.written(much)) <= much)
}

// allMissing returns err, or if it reports a missing input, an error with all inputs that storage
// lacks.
func (a *action) allMissing(ctx context.Context, err error) error {
	if a.inputs == nil {
		return err
	}
	s := inputs.Search{Inputs: a.inputs, Storage: a.storage, Log: a.log}
	if d, err := digest.FromProto(a.fn, a.message.GetCommandDigest()); err == nil {
		s.Named = append(s.Named, d)
	}
	if d, err := digest.FromProto(a.fn, a.message.GetInputRootDigest()); err == nil {
		s.Root = d
	}
	return s.All(ctx, err)
}
