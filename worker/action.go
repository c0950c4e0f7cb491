package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/cas/peer"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/ahead"
	"github.com/forerunner-build/forerunner/worker/diskguard"
	"github.com/forerunner-build/forerunner/worker/fault"
	"github.com/forerunner-build/forerunner/worker/inputs"
	"github.com/forerunner-build/forerunner/worker/live"
	"github.com/forerunner-build/forerunner/worker/outputs"
	"github.com/forerunner-build/forerunner/worker/policy"
	"github.com/forerunner-build/forerunner/worker/reuse"
	"github.com/forerunner-build/forerunner/worker/usage"
	"github.com/forerunner-build/forerunner/worker/vouching"
)

// An action is one run of one command, from start to report.
type action struct {
	p        *position
	task     *task
	log      *zap.Logger
	fn       digest.Function
	digest   digest.Digest
	message  *repb.Action
	command  *command
	how      *policy.Execution
	instance string
	storage  *casclient.Client  // of the action's instance name and function
	near     *peer.Neighbours   // before it; nil: there are none
	inputs   *fetch.ReadThrough // the worker's store, backed by these
	root     *vfs.Root
	ahead    *ahead.Fetch       // nil: nothing is fetched ahead
	former   *reuse.Attempt     // nil: nothing is reused
	vouch    *vouching.Vouching // of this run of the command; nil before the first
	runs     int                // of the command, this one included
	depart   func()             // lets another run of the same action begin; nil: it could already
	work     *workFolder
	times    timeline
	disk     diskguard.Period // zero: it has no place yet

	ran usage.Command // zero: the command did not run
	// vacated: neither a process of it is alive nor does another one have what was open
	// in it, nor will the kernel do anything more that a process of it has asked for, but what a lease
	// tells; runCommand finds out. watched: somebody asked for what it printed.
	vacated, watched bool
	// What the command read, before the worker itself looks for outputs.
	read    vfs.Stats
	stalled time.Duration
	size    inputs.Size
}

// execute runs the action that t names and returns the answer for the client.
// Every fault becomes a status in that answer; none reaches the next action. The
// caller calls release when the answer is on its way, before the next action. The
// answer is nil for an action that another worker has to run.
func (p *position) execute(ctx context.Context, t *task) (response *repb.ExecuteResponse, release func()) {
	a := &action{p: p, task: t, log: p.log, message: t.desired.GetAction()}
	a.times.begin(t.desired.GetQueuedTimestamp())
	response, err := a.runVouched(ctx)
	if a.crowdedOut(ctx, response, err) {
		err = errors.Join(diskguard.ErrFull, err)
	}
	if errors.Is(err, errOtherPlatform) || errors.Is(err, diskguard.ErrFull) {
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
		if err := a.storage.UpdateActionResult(casclient.WithGrant(ctx, a.task.grant), a.digest, response.GetResult()); err != nil {
			a.log.Warn("result was not written to the action cache", zap.Error(err))
		}
	}
	a.endRace()
	a.finish(ctx, response)
	if _, reused := a.former.Reused(); reused || err != nil || response.GetResult().GetExitCode() != 0 {
		return response, a.release
	}
	return response, func() {
		a.release()
		a.learn(ctx, a.mayCache(response))
	}
}

// begin takes the action to where its input root can be made. A response says that there is no need.
func (a *action) begin(ctx context.Context) (*repb.ExecuteResponse, error) {
	if err := a.enter(ctx); err != nil {
		return nil, err
	}
	if err := a.accept(ctx); err != nil {
		return nil, err
	}
	response := a.lookBack(ctx)
	if response != nil {
		a.times.enter(stageReport)
	}
	return response, nil
}

// run takes the action through its stages, once. It returns a response beside an
// error when the command ran, so that the client sees what it printed.
func (a *action) run(ctx context.Context) (*repb.ExecuteResponse, error) {
	a.task.enter(fetchingInputs())
	a.times.enter(stageFetch)
	if err := a.makeRoot(ctx); err != nil {
		return nil, err
	}
	a.times.enter(stageWait)
	if err := a.task.place.Execute(ctx); err != nil {
		return nil, err
	}
	a.task.enter(runningCommand())
	a.times.enter(stageExecute)
	result, err := a.runCommand(ctx)
	a.ran.Result = result
	a.measure()
	a.vouch.End(ctx)
	a.endRace()
	a.task.enter(uploadingOutputs())
	a.times.enter(stageUpload)
	if err != nil {
		return nil, err
	}
	if err := a.task.place.Report(ctx); err != nil {
		return nil, err
	}
	response, err := a.report(ctx, result)
	a.times.enter(stageReport)
	return response, err
}

// measure sees what the command read, and of how much.
func (a *action) measure() {
	a.read, a.stalled = a.root.Stats(), a.root.Stalled()
	a.p.w.metrics.stalled.Add(a.stalled.Seconds())
	a.p.w.metrics.observeGroup(a.ran.Group)
	if d, err := digest.FromProto(a.fn, a.message.GetInputRootDigest()); err == nil && a.seesReads() {
		a.size = a.p.w.sizes.Of(a.inputs, d)
	}
}

// seesReads reports whether anybody could see what the command read.
func (a *action) seesReads() bool { return a.p.w.opts.Roots.Method() != vfs.HardLink }

// enter occupies the action's place, which is there unless the scheduler sends
// work that was not asked for.
func (a *action) enter(ctx context.Context) (err error) {
	if a.task.place == nil {
		if a.task.place, err = a.p.w.pipeline.Enter(ctx); err != nil {
			return err
		}
	}
	if err := a.task.place.Begin(ctx); err != nil {
		return err
	}
	a.disk = a.p.w.disk.Begin()
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
	a.log = a.log.With(zap.String("action", a.digest.String()))
	if err := a.refuse(); err != nil {
		return err
	}
	if a.depart, err = a.p.w.pipeline.Alone(ctx, a.digest); err != nil {
		return err
	}
	if a.message.GetTimeout().AsDuration() <= 0 { // to the runner, 0 is no bound
		return fault.Errorf(codes.InvalidArgument, "action has no timeout above zero: the scheduler must set one")
	}
	a.instance = instance.Join(a.p.w.opts.InstancePrefix, desired.GetInstanceNameSuffix())
	a.storage = a.p.w.opts.Storage.WithInstance(a.instance, fn)
	a.inputs = a.readThrough(a.instance)
	a.lookAhead(ctx)
	commandDigest, err := digest.FromProto(fn, a.message.GetCommandDigest())
	if err != nil {
		return fault.Errorf(codes.InvalidArgument, "command digest: %w", err)
	}
	raw, err := a.inputs.ReadMessage(ctx, commandDigest)
	if err != nil {
		return fmt.Errorf("read command %s: %w", commandDigest, err)
	}
	message := &repb.Command{}
	if err := proto.Unmarshal(raw, message); err != nil {
		return fault.Errorf(codes.InvalidArgument, "command %s cannot be decoded: %w", commandDigest, err)
	}
	asked := platformOf(a.message, message)
	if err := a.p.w.opts.serves(asked); err != nil {
		return err
	}
	if a.command, err = parseCommand(message); err != nil {
		return fault.Errorf(codes.InvalidArgument, "command %s: %w", commandDigest, err)
	}
	a.ahead.KnowTool(a.command.args[0])
	a.how, err = a.p.w.opts.isolation().Plan(a.command.args, a.command.env, asked, a.p.index)
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

// errOtherPlatform says that an action is not for this worker.
var errOtherPlatform = errors.New("action is for another platform")

// serves returns errOtherPlatform for an action that does not ask for what this
// worker is. What else it asks for is between it and the scheduler, which may
// have properties that it does not match.
func (o *Options) serves(asked *repb.Platform) error {
	for _, own := range o.Platform.GetProperties() {
		if !slices.ContainsFunc(asked.GetProperties(), func(p *repb.Platform_Property) bool {
			return p.GetName() == own.GetName() && p.GetValue() == own.GetValue()
		}) {
			return fmt.Errorf("%w: it does not ask for %s=%s, which this worker has", errOtherPlatform, own.GetName(), own.GetValue())
		}
	}
	return nil
}

// makeRoot lets the input root appear and makes what the command finds in it:
// the parents of its outputs, and a folder for temporary files outside.
func (a *action) makeRoot(ctx context.Context) error {
	rootDigest, err := digest.FromProto(a.fn, a.message.GetInputRootDigest())
	if err != nil {
		return fault.Errorf(codes.InvalidArgument, "input root digest: %w", err)
	}
	name := fmt.Sprintf("%d-%d", a.p.index, a.p.count)
	if a.runs > 1 {
		name += fmt.Sprintf("-%d", a.runs)
	}
	if err := a.enterWorkFolder(name); err != nil {
		return err
	}
	if _, err := a.inputs.Directory(ctx, rootDigest); err != nil {
		return fmt.Errorf("read input root %s: %w", rootDigest, err)
	}
	a.times.enter(stageMount)
	a.root, err = a.p.w.opts.Roots.NewRoot(ctx, vfs.RootSpec{
		Name: name, Digest: rootDigest, Source: inputs.Source{ReadThrough: a.inputs, Store: a.p.w.opts.Store}, OnFirstRead: a.ahead.Hook(), OnLook: a.former.Hook(),
		OnBlob: a.vouch.Used, Owner: policy.OwnerOf(a.how.Sandbox.User),
	})
	if err != nil {
		return fmt.Errorf("make input root %s appear: %w", rootDigest, err)
	}
	a.times.enter(stagePrepare)
	return a.inRoot(func(root *os.Root) error {
		return policy.As(a.how.Sandbox.User, func() error { return a.command.Prepare(root) })
	})
}

// runCommand runs the command under the action's timeout, whose clock stands
// still while the command waits for storage.
func (a *action) runCommand(ctx context.Context) (runner.Result, error) {
	slot := a.task.place.Slot()
	a.ran.Limits = slot.Launcher.Limits()
	show := a.p.w.live.Begin(a.p.index, live.Printing{
		Action: a.digest.String(), Stdout: a.work.stdout(), Stderr: a.work.stderr(),
	})
	defer func() { a.watched = show() }()
	command := runner.Command{
		Args:           a.how.Args,
		Env:            a.how.Env,
		Policy:         a.how.Sandbox,
		Nice:           a.how.Nice,
		Folders:        sandbox.Folders{Root: a.root.Path(), TempDir: a.work.temp.Path()},
		Dir:            filepath.Join(a.root.Path(), a.command.WorkingDirectory),
		Stdout:         a.work.stdout(),
		Stderr:         a.work.stderr(),
		MaxOutputBytes: a.p.w.opts.MaxOutputBytes,
		Timeout:        a.message.GetTimeout().AsDuration(),
		Stalled:        a.root.Stalled,
		MaxStalled:     a.p.w.opts.MaxStall,
		// Processes that wait for the mount in the kernel end with the mount.
		Stuck: func([]int) { _ = a.root.Close() },
	}
	result, err := a.runBounded(ctx, func(ctx context.Context) (runner.Result, error) {
		return slot.Launcher.Run(ctx, command)
	})
	if errors.Is(err, runner.ErrLauncherDied) || errors.Is(err, runner.ErrUnkillable) || errors.Is(err, runner.ErrClosed) {
		left := slot.Launcher
		a.p.w.relaunch(ctx, slot)
		if errors.Is(err, runner.ErrUnkillable) {
			a.part(left)
		}
		return result, fault.Errorf(codes.Unavailable, "run command: %w", err)
	}
	if err != nil {
		return result, fmt.Errorf("run command: %w", err)
	}
	// All processes of it are gone; what they had open only if they could not hand it on, which takes
	// a sandbox, where none has io_uring.
	if a.how.Sandbox.NoNetwork || slot.Launcher.NotApart() == nil {
		a.vacated = true
		a.root.Vacated()
	}
	if err := a.verify(ctx); err != nil {
		return result, err
	}
	if err := a.root.Intact(); err != nil {
		// Nobody knows who did it, and who else shares the input fails as well:
		// for those another try is right.
		return result, fault.Errorf(codes.Aborted, "run command: %w", err)
	}
	switch result.Cause {
	case runner.NotStarted:
		return result, fault.Errorf(codes.InvalidArgument, "%s", result.Err)
	case runner.Cancelled:
		return result, fault.Errorf(codes.Canceled, "action was cancelled")
	}
	return result, nil
}

// part gives the position another user, as a process of this one is left in a launcher. Without a
// sandbox nothing tells when it ends.
func (a *action) part(left *runner.Launcher) {
	gone := left.Gone()
	if !a.p.w.opts.Sandboxed {
		gone = nil
	}
	if u := a.how.Sandbox.User; u != nil && !a.how.Users.Part(a.p.index, gone) {
		a.p.log.Warn("a process cannot be ended, and later actions are of its user: there is no other",
			zap.Uint32("uid", u.UID), zap.String("to_have_it", "a range of more users than actions at a time, in --user"))
	}
}

// report stores the outputs and makes the answer.
func (a *action) report(ctx context.Context, result runner.Result) (*repb.ExecuteResponse, error) {
	out := outputs.New(outputs.Options{
		Spec: a.command.Spec, Policy: a.p.w.opts.Outputs, Function: a.fn, Root: a.root, Inputs: a.inputs,
		Store: a.p.w.opts.Store, Storage: a.storage, Vacated: a.vacated,
	})
	defer out.Release()
	response := &repb.ExecuteResponse{Result: out.Result}
	out.Result.ExitCode = int32(result.ExitCode)
	out.Result.ExecutionMetadata = a.usage(result)
	err := out.Streams(ctx, outputs.Stream{File: a.work.stdout(), Truncated: result.StdoutTruncated},
		outputs.Stream{File: a.work.stderr(), Truncated: result.StderrTruncated})
	if err != nil {
		return nil, err
	}
	err = a.inRoot(func(root *os.Root) error { return out.Collect(ctx, root) })
	if errors.Is(err, outputs.ErrExcess) {
		a.p.w.excesses.add(a.digest, time.Now())
	}
	if err == nil {
		err = a.verify(ctx) // collecting may have read inputs, too
	}
	for d := range out.Unread() {
		a.vouch.Used(d)
	}
	// What was printed and made is worth having beside any error.
	if uploadErr := out.Upload(ctx); uploadErr != nil {
		return nil, errors.Join(err, uploadErr, out.Verify(ctx, uploadErr))
	}
	if err != nil {
		return response, err
	}
	if result.Cause == runner.OutOfMemory {
		out.Result.ExitCode, response.Message = usage.ExitOutOfMemory, a.ran.OutOfMemory()
		return response, nil
	}
	a.former.Made(out.Result, slices.Collect(out.Needs()))
	if result.Cause == runner.TimedOut {
		return response, fault.Errorf(codes.DeadlineExceeded, "command ran longer than its timeout of %s",
			a.message.GetTimeout().AsDuration())
	}
	if result.Signal != "" {
		response.Message = fmt.Sprintf("command was ended by signal %s", result.Signal)
	} else if result.ExitCode != 0 && a.how.Unasked {
		response.Message = policy.NoNetworkHint
	}
	return response, nil
}

// mayCache reports whether a result may serve others: the command ended by itself
// with exit code 0, had room for all it wrote, and nothing forbids it.
func (a *action) mayCache(response *repb.ExecuteResponse) bool {
	return !a.message.GetDoNotCache() && response.GetResult().GetExitCode() == 0 && response.GetStatus() == nil &&
		!a.disk.WasFull()
}

// release takes the input root and the temporary files away, and gives up the place.
func (a *action) release() {
	a.leaveRun()
	if a.depart != nil {
		a.depart()
	}
	a.task.leave()
}

// inRoot calls f with the merged input root, which f cannot leave: every path
// is resolved component by component, and a symlink out of it is an error.
func (a *action) inRoot(f func(*os.Root) error) error {
	root, err := os.OpenRoot(a.root.Path())
	if err != nil {
		return fmt.Errorf("open input root: %w", err)
	}
	err = f(root)
	// The file system says only that an input could not be read, the root why.
	if cause := a.root.Err(); cause != nil && fault.IsUnreadable(err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return errors.Join(err, root.Close())
}

// finish counts the action, traces it, and writes its one line to the log.
func (a *action) finish(ctx context.Context, response *repb.ExecuteResponse) {
	code := codes.Code(response.GetStatus().GetCode())
	outcome := "ok"
	switch {
	case code != codes.OK:
		outcome = code.String()
	case a.ran.Cause == runner.OutOfMemory:
		outcome = "out_of_memory"
	case response.GetResult().GetExitCode() != 0:
		outcome = "exit_code"
	}
	a.p.w.metrics.actions.WithLabelValues(outcome).Inc()
	fields := []zap.Field{
		zap.String("outcome", outcome),
		zap.Int32("exit_code", response.GetResult().GetExitCode()),
	}
	for stage, d := range a.times.durations() {
		a.p.w.metrics.observe(stage, d)
		fields = append(fields, zap.Duration(stage, d.Round(time.Microsecond)))
	}
	if a.root != nil && a.seesReads() {
		fields = append(fields, zap.Int64("files_read", a.read.FilesRead), zap.Int64("bytes_read", a.read.BytesRead),
			zap.Int64("root_files", a.size.Files), zap.Int64("root_bytes", a.size.Bytes),
			zap.Bool("root_whole", a.size.Whole), zap.Duration("stall", a.stalled))
	}
	fields = append(append(fields, a.ran.Fields()...), a.ahead.Fields()...)
	fields = append(append(fields, a.former.Fields()...), a.borrowedFields()...)
	message := response.GetStatus().GetMessage()
	if message != "" {
		fields = append(fields, zap.String("error", message))
	}
	a.trace(ctx, outcome, message)
	a.log.Info("action finished", fields...)
}

// crowdedOut reports whether an action may have failed for lack of room that it has not taken itself: most
// of what was free at its start.
func (a *action) crowdedOut(ctx context.Context, response *repb.ExecuteResponse, err error) bool {
	failed := response.GetResult().GetExitCode() != 0 && a.ran.Cause != runner.OutOfMemory
	if err != nil {
		failed = errors.Is(err, cas.ErrNoSpace) || errors.Is(err, cas.ErrUnwritable) || fault.Status(ctx, err).Code() == codes.Internal
	}
	return failed && a.disk.WasFull() && (a.root == nil || a.written() <= a.disk.Free()/2)
}

// allMissing returns err, or where it says that an input is missing, one that says what else storage lacks.
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

// verify fails if an input could not be read, or is not what its digest says: that
// has shaped whatever was made of it. It waits for inputs of which a part was
// read before the whole had come.
func (a *action) verify(ctx context.Context) error {
	if err := a.root.Verify(ctx); err != nil {
		return fmt.Errorf("the command met an input that cannot be read: %w", err)
	}
	return nil
}
