package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/worker/fault"
	"github.com/forerunner-build/forerunner/worker/inputs"
	"github.com/forerunner-build/forerunner/worker/live"
	"github.com/forerunner-build/forerunner/worker/outputs"
	"github.com/forerunner-build/forerunner/worker/policy"
	"github.com/forerunner-build/forerunner/worker/usage"
	"github.com/forerunner-build/forerunner/worker/vouching"
)

// A run is one run of an action's command, which runs again if its inputs were damaged.
type run struct {
	a      *action
	w      *Worker
	number int // from 1

	vouch *vouching.Vouching // nil: it has not begun, or is over
	root  *vfs.Root
	work  *workFolder
	used  usage.Command  // zero: the command did not run
	shown *live.Printing // nil: the command did not run, or its output cannot be watched
	// vacated: no process of it is alive, no other process has its open files, and the kernel will
	// do nothing more that one of its processes has requested, except what a lease reveals;
	// runCommand determines it. watched: a client asked for its output.
	vacated, watched bool
	crowded          bool  // memory for files of the command was full, so its outputs may be truncated
	wrote            int64 // the most bytes of its files that were seen while it ran, including files without names
	// The reads of the command, before the worker itself looks for outputs.
	read    vfs.Stats
	stalled time.Duration
	size    inputs.Size
}

// newRun returns the run after the last one. It has done nothing.
func (a *action) newRun() *run {
	r := &run{a: a, w: a.w, number: 1}
	if a.last != nil {
		r.number = a.last.number + 1
	}
	return r
}

// do takes the run through its stages, from its inputs to its outputs. It returns a response beside
// an error when the command ran, so that the client sees its output.
func (r *run) do(ctx context.Context) (*repb.ExecuteResponse, error) {
	r.vouch = vouching.New(r.w.opts.Store.Verifier())
	r.a.task.enter(fetchingInputs())
	r.a.times.enter(stageFetch)
	if err := r.makeRoot(ctx); err != nil {
		return nil, err
	}
	r.a.times.enter(stageWait)
	if err := r.a.task.permit.Execute(ctx); err != nil {
		return nil, err
	}
	r.a.task.enter(runningCommand())
	r.a.times.enter(stageExecute)
	result, err := r.runCommand(ctx)
	r.used.Result = result
	r.measure()
	r.vouch.End(ctx)
	r.a.endRace()
	r.a.task.enter(uploadingOutputs())
	r.a.times.enter(stageUpload)
	if err != nil {
		return nil, err
	}
	if err := r.a.task.permit.Report(ctx); err != nil {
		return nil, err
	}
	response, err := r.report(ctx, result)
	r.a.times.enter(stageReport)
	return response, err
}

// makeRoot makes the input root and the folders for the command: the parents of its outputs, and a
// temporary folder outside.
func (r *run) makeRoot(ctx context.Context) error {
	rootDigest, err := digest.FromProto(r.a.fn, r.a.message.GetInputRootDigest())
	if err != nil {
		return fault.Errorf(codes.InvalidArgument, "input root digest: %w", err)
	}
	name := fmt.Sprintf("%d-%d", r.a.p.index, r.a.p.count)
	if r.number > 1 {
		name += fmt.Sprintf("-%d", r.number)
	}
	if err := r.enterWorkFolder(name); err != nil {
		return err
	}
	if _, err := r.a.inputs.Directory(ctx, rootDigest); err != nil {
		return fmt.Errorf("read input root %s: %w", rootDigest, err)
	}
	r.a.times.enter(stageMount)
	r.root, err = r.w.opts.Roots.NewRoot(ctx, vfs.RootSpec{
		Name: name, Digest: rootDigest, Owner: policy.OwnerOf(r.a.how.Sandbox.User),
		Source:      inputs.Source{ReadThrough: r.a.inputs, Verifier: r.w.opts.Store.Verifier(), Opened: r.a.ahead.Opened, ReadPart: r.a.ahead.ReadPart},
		OnFirstRead: r.a.ahead.Hook(), OnLook: r.a.former.Hook(), OnBlob: r.uses, OnBlobRead: r.hasRead,
		OnCopyRead: r.a.ahead.Used, Folders: r.a.command.Folders(),
	})
	if err != nil {
		return fmt.Errorf("make input root %s appear: %w", rootDigest, err)
	}
	r.a.times.enter(stagePrepare)
	if r.a.command.IsPrepared(r.root.HasFolder) {
		return nil
	}
	return r.root.Aside(func() error {
		return r.inRoot(func(root *os.Root) error {
			return policy.As(r.a.how.Sandbox.User, func() error { return r.a.command.Prepare(root) })
		})
	})
}

// uses notes that the command may read a blob.
func (r *run) uses(d digest.Digest) {
	r.vouch.Used(d)
	r.a.ahead.Used(d)
}

// hasRead notes that the command may have read a blob.
func (r *run) hasRead(d digest.Digest) {
	r.vouch.Read(d)
	r.a.ahead.Used(d)
}

// runCommand runs the command under the action's timeout. Time in which the command waits for
// storage does not count.
func (r *run) runCommand(ctx context.Context) (runner.Result, error) {
	slot := r.a.task.permit.Slot()
	select {
	case <-slot.Launcher.Gone(): // while it had no command
		r.a.log.Warn("an unknown process killed the launcher of the slot, which gets another", zap.Int("slot", slot.Index))
		r.w.relaunch(ctx, slot)
	default:
	}
	r.used.Limits = slot.Launcher.Limits()
	r.shown = r.w.live.Begin(r.a.p.index, live.Printing{
		Action: r.a.digest.String(), Run: r.number, Stdout: r.work.stdout(), Stderr: r.work.stderr(),
	})
	defer func() { r.watched = r.shown.End() }()
	command := runner.Command{
		Args:           r.a.how.Args,
		Env:            r.a.how.Env,
		Policy:         r.a.how.Sandbox,
		Namespace:      r.a.how.Users.Namespace(r.a.how.Sandbox.User),
		Nice:           r.a.how.Nice,
		Folders:        sandbox.Folders{Root: r.root.Path(), TempDir: r.work.temp.Path()},
		Dir:            filepath.Join(r.root.Path(), r.a.command.WorkingDirectory),
		Stdout:         r.work.stdout(),
		Stderr:         r.work.stderr(),
		MaxOutputBytes: r.w.opts.MaxOutputBytes,
		Timeout:        r.a.message.GetTimeout().AsDuration(),
		Stalled:        r.root.Stalled,
		MaxStalled:     r.w.opts.MaxStall,
		// Processes that wait for the mount in the kernel end with the mount.
		Stuck: func([]int) { _ = r.root.Close() },
	}
	result, err := r.runBounded(ctx, slot.Launcher, func(ctx context.Context) (runner.Result, error) {
		return slot.Launcher.Run(ctx, command)
	})
	if errors.Is(err, runner.ErrLauncherDied) || errors.Is(err, runner.ErrUnkillable) || errors.Is(err, runner.ErrClosed) {
		left := slot.Launcher
		r.w.relaunch(ctx, slot)
		if errors.Is(err, runner.ErrUnkillable) {
			r.part(left)
		}
		if result.Cause == runner.TimedOut { // which is final, while clients retry UNAVAILABLE
			return result, fault.Errorf(codes.DeadlineExceeded, "command ran longer than its timeout of %s, and was not seen to end: %w",
				r.a.message.GetTimeout().AsDuration(), err)
		}
		return result, fault.Errorf(codes.Unavailable, "run command: %w", err)
	}
	if err != nil {
		return result, fmt.Errorf("run command: %w", err)
	}
	// All its processes are gone. Their open files are, too, if they could not pass them on, which
	// requires a sandbox, where no process has io_uring.
	if r.a.how.Sandbox.NoNetwork || slot.Launcher.NotApart() == nil {
		r.vacated = true
		r.root.Vacated()
	}
	if err := r.verify(ctx); err != nil {
		return result, err
	}
	if err := r.root.Intact(); err != nil {
		// The process that did it is unknown, and all actions that share the input fail as well: a
		// retry is right for them.
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

// part gives the position another user, because a process of the present one is left in a launcher.
// Without a sandbox its end cannot be detected.
func (r *run) part(left *runner.Launcher) {
	gone := left.Gone()
	if !r.w.opts.Isolation.Sandboxed {
		gone = nil
	}
	if u := r.a.how.Sandbox.User; u != nil && !r.a.how.Users.Part(r.a.p.index, gone) {
		r.a.p.log.Warn("a process cannot be ended, and later actions have its user: there is no other",
			zap.Uint32("uid", u.UID), zap.String("remedy", "a range of more users than actions at a time, in --user"))
	}
}

// measure records the reads of the command.
func (r *run) measure() {
	r.read, r.stalled = r.root.Stats(), r.root.Stalled()
	r.w.metrics.stalled.Add(r.stalled.Seconds())
	r.w.metrics.observeGroup(r.used.Group)
	if d, err := digest.FromProto(r.a.fn, r.a.message.GetInputRootDigest()); err == nil && r.a.seesReads() {
		r.size = r.w.sizes.Of(r.a.inputs, d)
	}
}

// report stores the outputs and makes the answer.
func (r *run) report(ctx context.Context, result runner.Result) (*repb.ExecuteResponse, error) {
	out := outputs.New(outputs.Options{
		Spec: r.a.command.Spec, Policy: r.w.opts.Outputs, Function: r.a.fn, Root: r.root, Inputs: r.a.inputs,
		Store: r.w.opts.Store, Storage: r.a.storage, Instance: r.a.instance, Vacated: r.vacated,
	})
	defer out.Release()
	response := &repb.ExecuteResponse{Result: out.Result}
	out.Result.ExitCode = int32(result.ExitCode)
	out.Result.ExecutionMetadata = r.usage(result)
	// Before Streams, which may move the files.
	offline := result.ExitCode != 0 && r.a.how.Unasked && policy.MissesNetwork(result.ExitCode, r.work.stdout(), r.work.stderr())
	err := out.Streams(ctx, outputs.Stream{File: r.work.stdout(), Truncated: result.StdoutTruncated},
		outputs.Stream{File: r.work.stderr(), Truncated: result.StderrTruncated})
	if err != nil {
		return nil, err
	}
	if len(r.a.command.Paths) > 0 {
		err = r.inRoot(func(root *os.Root) error { return out.Collect(ctx, root) })
	}
	if errors.Is(err, outputs.ErrTooMuch) {
		r.w.refusals.add(r.a.digest, err, time.Now())
	}
	if err == nil {
		err = r.verify(ctx) // collecting may have read inputs, too
	}
	for d := range out.Unread() {
		r.vouch.Used(d)
	}
	// Output and outputs are useful beside any error.
	if uploadErr := out.Upload(ctx); uploadErr != nil {
		return nil, errors.Join(err, uploadErr)
	}
	if err != nil {
		return response, err
	}
	if result.Cause == runner.OutOfMemory {
		out.Result.ExitCode, response.Message = usage.ExitOutOfMemory, r.used.OutOfMemory()
		return response, nil
	}
	r.a.former.Made(out.Result, slices.Collect(out.Needs()))
	if result.Cause == runner.TimedOut {
		return response, fault.Errorf(codes.DeadlineExceeded, "command ran longer than its timeout of %s",
			r.a.message.GetTimeout().AsDuration())
	}
	if result.Signal != "" {
		response.Message = fmt.Sprintf("command was ended by signal %s", result.Signal)
	} else if offline {
		response.Message = policy.NoNetworkHint
	}
	return response, nil
}

// usage starts the metadata with the resource usage of the command.
func (r *run) usage(result runner.Result) *repb.ExecutedActionMetadata {
	elapsed := result.Ended.Sub(result.Started)
	m := &repb.ExecutedActionMetadata{
		VirtualExecutionDuration: durationpb.New(max(elapsed-r.stalled, 0)),
	}
	if result.Usage != nil {
		m.AuxiliaryMetadata = pack(m.AuxiliaryMetadata, result.Usage)
	}
	if used := r.used.Resources(); used != nil {
		m.AuxiliaryMetadata = pack(m.AuxiliaryMetadata, used)
	}
	return m
}

// appendInputUse adds the reads of the command, unless they were invisible.
func (r *run) appendInputUse(list []*anypb.Any) []*anypb.Any {
	if !r.a.seesReads() {
		return list
	}
	stats := r.read
	blobs, bytes := r.a.inputs.Fetched()
	list = pack(list, &resourceusage.InputRootResourceUsage{
		DirectoriesResolved: uint64(stats.DirectoriesRead),
		DirectoriesRead:     uint64(stats.DirectoriesRead),
		FilesRead:           uint64(stats.FilesRead),
	})
	return pack(list, &actionstats.InputRoot{
		DirectoriesRead: stats.DirectoriesRead,
		FilesRead:       stats.FilesRead,
		BytesRead:       stats.BytesRead,
		BlobsFetched:    blobs,
		BytesFetched:    bytes,
		Stalled:         durationpb.New(r.stalled),
		RootFiles:       r.size.Files,
		RootBytes:       r.size.Bytes,
		RootWhole:       r.size.Whole,
		ReadsIncomplete: stats.Incomplete,
	})
}

// inRoot calls f with the merged input root, which f cannot leave: every path
// is resolved component by component, and a symlink out of it is an error.
func (r *run) inRoot(f func(*os.Root) error) error {
	root, err := os.OpenRoot(r.root.Path())
	if err != nil {
		return fmt.Errorf("open input root: %w", err)
	}
	err = f(root)
	// The file system only reports that an input could not be read; the root has the reason.
	if cause := r.root.Err(); cause != nil && fault.IsUnreadable(err) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return errors.Join(err, root.Close())
}

// verify fails if an input could not be read, or does not match its digest, because that may have
// changed the outputs. It waits for inputs that were read in part before they were complete.
func (r *run) verify(ctx context.Context) error {
	if err := r.root.Verify(ctx); err != nil {
		return fmt.Errorf("the command used an input that cannot be read: %w", err)
	}
	return nil
}

// vouchFor waits until all inputs of this run are verified. err is the outcome of the run; it may
// itself report damage.
func (r *run) vouchFor(ctx context.Context, err error) error {
	if vouching.IsDamage(err) {
		return err
	}
	if errors.Is(err, vfs.ErrInputChanged) {
		return nil // it fails for that, and a run that did it would do it again
	}
	var damage error
	if r.root != nil {
		damage = r.root.Vouch(ctx) // first: it reports which blobs were used
	}
	return errors.Join(damage, r.vouch.Wait(ctx))
}

// leave removes the resources of the run. It may be called again.
func (r *run) leave() {
	if r.root != nil {
		if err := r.root.Close(); err != nil {
			r.a.log.Error("an input root was not released", zap.Error(err))
		}
		r.root = nil
	}
	if r.work != nil {
		r.leaveWorkFolder()
		r.work = nil
	}
	if r.vouch != nil {
		r.vouch.Close()
		r.vouch = nil
	}
}
