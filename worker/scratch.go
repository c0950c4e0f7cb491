package worker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/worker/fault"
	"github.com/forerunner-build/forerunner/worker/health"
	"github.com/forerunner-build/forerunner/worker/watch"
)

const (
	// scratchInterval is the shortest time between two measurements of a command's files.
	scratchInterval = 500 * time.Millisecond
	// scratchShare bounds the time that this takes: one part in so many.
	scratchShare = 20
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
	if found != nil && !found.Own {
		r.w.uncharged.Settle(ctx)
	}
	if found != nil && err == nil {
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

// tooMuch is the error of an action whose command was stopped for overuse. If another command
// that ran at the time may be the cause, a retry makes sense.
func (r *run) tooMuch(e *watch.Overuse) error {
	if e.Own {
		r.w.refusals.add(r.a.digest, time.Now())
		return fault.Errorf(codes.ResourceExhausted, "the command used more than %s, which its memory limit does not count", e.What)
	}
	return fault.Errorf(codes.Unavailable,
		"this command, or another one that ran beside it, used more than %s, which its memory limit does not count", e.What)
}

// runWatched is runBounded without the error for uncharged memory.
func (r *run) runWatched(
	ctx context.Context, until func(context.Context, func()) *watch.Overuse,
	launcher *runner.Launcher, run func(context.Context) (runner.Result, error),
) (runner.Result, *watch.Overuse, error) {
	most := r.w.opts.Outputs.Scratch
	ctx, cancel := context.WithCancel(ctx)
	exceeded := make(chan bool, 1)
	looks := time.AfterFunc(scratchInterval, func() { exceeded <- r.watchScratch(ctx, launcher, cancel) })
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
	stopped := !looks.Stop() && <-exceeded
	var found *watch.Overuse
	if !watched.Stop() {
		found = <-exceeds
	}
	// A short command has ended before anybody looked.
	if found != nil || err != nil || !stopped && r.written(most) <= most {
		return result, found, err
	}
	r.w.refusals.add(r.a.digest, time.Now())
	return result, nil, fault.Errorf(codes.ResourceExhausted,
		"the command wrote more than the %d bytes that an action may have in its input root and temporary files, "+
			"each of which counts as 4 KiB at least (max_scratch)", most)
}

// watchScratch looks now and again and calls stop when there is more than the policy allows, and
// reports whether it did. It returns when ctx ends.
func (r *run) watchScratch(ctx context.Context, launcher *runner.Launcher, stop func()) bool {
	most := r.w.opts.Outputs.Scratch
	var nameless atomic.Int64
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() { watchNameless(ctx, launcher, most, &nameless) })
	for ctx.Err() == nil {
		began := time.Now()
		n := r.written(most)
		if n <= most && n+nameless.Load() > most {
			n = r.writtenWithNameless(ctx, launcher, most)
		}
		r.wrote = max(n, r.wrote)
		if n > most {
			stop()
			return true
		}
		select {
		case <-ctx.Done():
		case <-time.After(max(scratchInterval, scratchShare*time.Since(began))):
		}
	}
	return false
}

// watchNameless keeps bytes at what files without a name take, which are gone when the command has
// ended. A command with millions of descriptors makes such a look long: it holds up no other.
func watchNameless(ctx context.Context, launcher *runner.Launcher, most int64, bytes *atomic.Int64) {
	for ctx.Err() == nil {
		began := time.Now()
		bytes.Store(folder.Nameless(ctx, launcher.Processes(), most))
		select {
		case <-ctx.Done():
		case <-time.After(max(scratchInterval, scratchShare*time.Since(began))):
		}
	}
}

// writtenWithNameless is written with what files without a name take. A file that gets a name
// meanwhile, or loses it, does not count twice.
func (r *run) writtenWithNameless(ctx context.Context, launcher *runner.Launcher, most int64) int64 {
	before := folder.Nameless(ctx, launcher.Processes(), most)
	n := r.written(most)
	return n + min(before, folder.Nameless(ctx, launcher.Processes(), most))
}

// watchMemory reports whether memory for the command's files was full at any time until ctx ended.
func (r *run) watchMemory(ctx context.Context) bool {
	for {
		bytes, files, full := r.root.MemoryLeft()
		if full || ctx.Err() != nil {
			return full
		}
		select {
		case <-ctx.Done():
		case <-time.After(health.NextLook(health.Lasts(bytes, files))):
		}
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
