package prefetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/bench/program"
	"github.com/forerunner-build/forerunner/bench/report"
	"github.com/forerunner-build/forerunner/bench/testbed"
	"github.com/forerunner-build/forerunner/pause"
)

// The programs that run in separate processes.
const (
	schedulerProgram = "forerunner-scheduler"
	workerProgram    = "forerunner-worker"
)

// An outsideFarm is a scheduler with its storage in a separate process. Its workers are separate
// processes too, which come and go and have default settings.
type outsideFarm struct {
	*testbed.Client
	dir, programs string
	address       string
	scheduler     *program.Program
	starts        int // number of started workers
}

// startOutside starts the farm of column outside with the inputs of the go build, if the programs
// exist.
func (b *prefetchBench) startOutside(ctx context.Context) (err error) {
	w := b.works[workGo]
	if w == nil {
		return nil
	}
	for _, name := range []string{schedulerProgram, workerProgram} {
		if _, err := os.Stat(filepath.Join(b.o.programs, name)); err != nil {
			b.lacks[string(outside)] = fmt.Sprintf("no %s in %s; make bench-prefetch builds it, --programs names another folder", name, b.o.programs)
			return nil
		}
	}
	f := &outsideFarm{dir: filepath.Join(b.farm.Dir, "outside"), programs: b.o.programs}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
		}
	}()
	if err := os.Mkdir(f.dir, 0o755); err != nil {
		return err
	}
	report.Progress("storing the inputs of %s for separate programs", w.name)
	f.scheduler, f.address, err = program.Start(ctx, program.ServesLine, filepath.Join(f.dir, "scheduler.log"),
		filepath.Join(f.programs, schedulerProgram), "--data", filepath.Join(f.dir, "scheduler"),
		"--listen", "127.0.0.1:0", "--http", "", "--log-json")
	if err != nil {
		return err
	}
	if f.Client, err = testbed.Dial(f.address); err != nil {
		return err
	}
	if err := f.Storage.Upload(ctx, w.inputs.Blobs, nil); err != nil {
		return err
	}
	b.outside = f
	return nil
}

// close ends the farm. Its workers must have ended.
func (f *outsideFarm) close() error {
	var errs []error
	if f.Client != nil {
		errs = append(errs, f.Conn.Close())
	}
	if f.scheduler != nil {
		errs = append(errs, f.scheduler.End())
	}
	return errors.Join(append(errs, os.RemoveAll(f.dir))...)
}

// withWorker calls use while a worker with an empty store serves the farm, with its storage at a
// distance. The worker has run an action, so its connections are open. The caller removes the
// worker's data folder, which may hold a memory.
func (f *outsideFarm) withWorker(
	ctx context.Context, data string, d testbed.Distance, use func(worker *program.Program, far *testbed.Proxy) error,
) (err error) {
	far, err := testbed.StartProxy(ctx, f.address, d)
	if err != nil {
		return err
	}
	defer far.Close()
	log := data + ".log"
	worker, _, err := program.Start(ctx, program.ReadyLine, log, filepath.Join(f.programs, workerProgram),
		"--scheduler", "grpc://"+f.address, "--storage", "grpc://"+far.Address()+"?compression=zstd", "--data", data, "--http", "", "--log-json")
	defer func() { err = errors.Join(err, os.RemoveAll(log)) }()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, worker.End()) }()
	if _, err := f.Execute(ctx, &testbed.Action{Command: &repb.Command{Arguments: []string{"/bin/true"}}}); err != nil {
		return err
	}
	return use(worker, far)
}

// train makes a worker run the training actions of w, and returns its data folder.
func (f *outsideFarm) train(ctx context.Context, w *workload) (string, error) {
	report.Progress("training %s for separate programs", w.name)
	data := filepath.Join(f.dir, "memory")
	err := f.withWorker(ctx, data, testbed.Distance{}, func(_ *program.Program, far *testbed.Proxy) error {
		_, _, err := once(ctx, f.Client, w.slots, w.actions, far)
		return err
	})
	return data, errors.Join(err, os.RemoveAll(filepath.Join(data, "cas")))
}

// runOutside takes a sample of a cell, and one of the warm cell that it is compared with, on a new
// worker with a trained memory.
func (b *prefetchBench) runOutside(ctx context.Context, c cell) (err error) {
	f, w := b.outside, b.works[c.work]
	f.starts++
	data := filepath.Join(f.dir, fmt.Sprintf("worker-%d", f.starts))
	if err := testbed.CopyMemory(data, b.memories[memoryKey{c.work, c.column}].folder); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	return f.withWorker(ctx, data, b.distance(c), func(worker *program.Program, far *testbed.Proxy) error {
		var took []sample
		for range 2 {
			before, err := program.UsageOf(worker.PID())
			if err != nil {
				return err
			}
			s, _, err := once(ctx, f.Client, w.slots, w.actions, far)
			if err != nil {
				return err
			}
			if err := pause.For(ctx, afterBuild); err != nil {
				return err
			}
			after, err := program.UsageOf(worker.PID())
			if err != nil {
				return err
			}
			used := after.Less(before)
			s.serving = (used.Self + used.Children).Seconds()
			took = append(took, s)
		}
		b.samples[c] = append(b.samples[c], took[0])
		b.samples[c.warm()] = append(b.samples[c.warm()], took[1])
		return nil
	})
}
