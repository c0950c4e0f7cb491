package worker

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/pause"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/worker/fault"
	"github.com/forerunner-build/forerunner/worker/health"
	"github.com/forerunner-build/forerunner/worker/scratch"
	"github.com/forerunner-build/forerunner/worker/watch"
)

// runBounded makes run execute the command and stops it when its files exceed the limit of the
// policy, or when it uses too much uncharged memory, which is then the error.
func (r *run) runBounded(
	ctx context.Context, launcher *runner.Launcher, run func(context.Context) (runner.Result, error),
) (runner.Result, error) {
	closing, err := r.w.uncharged.Enter(ctx)
	if err != nil {
		return runner.Result{Cause: runner.Cancelled}, nil
	}
	result, found, err := r.runWatched(ctx, r.watch(launcher, closing), launcher, run)
	r.w.uncharged.Leave()
	if found != nil {
		r.w.uncharged.Settle(ctx)
	}
	if err == nil && wasStopped(found, result) {
		err = r.tooMuch(found)
	}
	return result, err
}

// watch returns how the memory of a command that is about to begin is watched. Without a sandbox it
// can do all that the worker can, and nothing is watched.
func (r *run) watch(launcher *runner.Launcher, closing <-chan struct{}) (until func(context.Context, func()) *watch.Overuse) {
	if !r.w.opts.Isolation.Sandboxed {
		return func(context.Context, func()) *watch.Overuse { return nil }
	}
	return r.w.uncharged.Watch(watch.Command{Processes: launcher.Processes, Network: !r.a.how.Sandbox.NoNetwork}, closing).Until
}

// wasStopped reports whether a command was stopped for overuse. One that ended by itself before that
// keeps its result.
func wasStopped(found *watch.Overuse, result runner.Result) bool {
	return found != nil && result.Cause == runner.Cancelled
}

// tooMuch is the error of an action whose command was stopped for overuse. If another command
// that ran at the time may be the cause, a retry makes sense.
func (r *run) tooMuch(e *watch.Overuse) error {
	if e.Own {
		err := fault.Errorf(codes.FailedPrecondition, "the command used more than %s, which its memory limit does not count", e.What)
		r.w.refusals.add(r.a.digest, err, time.Now())
		return err
	}
	return fault.Errorf(codes.Unavailable,
		"this command, or another one that ran beside it, used more than %s, which its memory limit does not count", e.What)
}

// runWatched is runBounded without the error for uncharged memory.
func (r *run) runWatched(
	ctx context.Context, until func(context.Context, func()) *watch.Overuse,
	launcher *runner.Launcher, run func(context.Context) (runner.Result, error),
) (runner.Result, *watch.Overuse, error) {
	files := r.scratch(launcher)
	ctx, cancel := context.WithCancel(ctx)
	scratched := files.Begin(ctx, cancel)
	full := make(chan bool, 1)
	if r.root.InMemory() {
		go func() { full <- r.watchMemory(ctx) }()
	} else {
		full <- false
	}
	exceeds := make(chan *watch.Overuse, 1)
	watched := time.AfterFunc(watch.FirstLook, func() { exceeds <- until(ctx, cancel) })
	result, err := run(ctx)
	cancel()
	r.crowded = <-full
	wrote, exceeded := scratched.End()
	r.wrote = wrote
	var found *watch.Overuse
	if !watched.Stop() {
		found = <-exceeds
	}
	if wasStopped(found, result) || err != nil || !exceeded {
		return result, found, err
	}
	err = fault.Errorf(codes.FailedPrecondition,
		"the command wrote more than the %d bytes that an action may have in its input root and temporary files, "+
			"each of which counts as 4 KiB at least (max_scratch)", files.Most)
	r.w.refusals.add(r.a.digest, err, time.Now())
	return result, found, err
}

// scratch are the files that the command of a launcher writes.
func (r *run) scratch(launcher *runner.Launcher) scratch.Files {
	return scratch.Files{
		Most: r.w.opts.Outputs.Scratch, Named: r.written,
		Nameless: func(ctx context.Context, most int64) int64 { return folder.Nameless(ctx, launcher.Processes(), most) },
		Disks:    func() scratch.Disks { return scratch.DisksOf(r.root.Writable(), r.work.dir) },
	}
}

// watchMemory reports whether memory for the command's files was full at any time until ctx ended.
func (r *run) watchMemory(ctx context.Context) bool {
	for {
		bytes, files, full := r.root.MemoryLeft()
		if full || ctx.Err() != nil {
			return full
		}
		_ = pause.For(ctx, health.NextLook(health.Lasts(bytes, files))) // the loop sees the end of ctx
	}
}

// written is how many bytes the command's files take, or more than most.
func (r *run) written(most int64) int64 {
	n := r.root.WrittenBytes(most)
	if n > most {
		return n
	}
	return n + folder.Usage(r.work.dir, most-n)
}
