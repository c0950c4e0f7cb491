package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/cas"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
	"github.com/forerunner-build/forerunner/vfs"
)

// A benchFarm is a scheduler with its storage in this process. Workers come and go, but
// only when there is none, for each needs launchers from a time without mounts.
type benchFarm struct {
	dir     string // everything that the farm and its workers keep
	log     *zap.Logger
	address string
	conn    *grpc.ClientConn
	storage *cas.Client
	starts  int // of workers
	stop    context.CancelFunc
	ended   chan error
}

// startFarm starts a scheduler that keeps its data in dir.
func startFarm(ctx context.Context, dir string) (*benchFarm, error) {
	log, err := newLogger()
	if err != nil {
		return nil, err
	}
	// It lasts until close, so that workers can drain after ctx has ended.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := &benchFarm{dir: dir, log: log, stop: stop, ended: make(chan error, 1)}
	scheduler := farm.Scheduler{
		Listen: "127.0.0.1:0", Data: filepath.Join(dir, "farm"), CacheSize: "8G", Logger: log,
	}
	address := make(chan string, 1)
	go func() {
		f.ended <- scheduler.Run(serving, func(a string) error { address <- a; return nil })
	}()
	select {
	case f.address = <-address:
	case err := <-f.ended:
		stop()
		return nil, fmt.Errorf("start farm: %w", errors.Join(err, serving.Err()))
	}
	if f.conn, err = farm.Dial(f.address); err != nil {
		return nil, errors.Join(err, f.close())
	}
	f.storage = cas.NewClient(f.conn, cas.ClientOptions{NoCompression: true})
	return f, nil
}

// close ends the farm, whose workers have ended.
func (f *benchFarm) close() error {
	var err error
	if f.conn != nil {
		err = f.conn.Close()
	}
	f.stop()
	return errors.Join(err, <-f.ended)
}

// A setting is what a worker is started with.
type setting struct {
	distance distance // of its storage
	method   vfs.Method
	slots    int
	memory   string            // folder with what a worker remembered that had the same data before; empty: nothing
	keep     string            // folder that gets what this one remembers; empty: it is forgotten
	plain    bool              // neither recorder nor prefetcher
	platform map[string]string // of the actions that it gets; nil: those without one
	lends    bool              // to other workers of the farm
}

// withWorker calls use while a new worker with an empty cache serves the farm. The
// worker has run something, so that it is connected with its storage, through far.
func (f *benchFarm) withWorker(ctx context.Context, s setting, use func(far *proxy) error) error {
	return f.withWorkers(ctx, []setting{s}, func(far []*proxy) error { return use(far[0]) })
}

// withWorkers is withWorker for several that serve at the same time.
func (f *benchFarm) withWorkers(ctx context.Context, settings []setting, use func(far []*proxy) error) (err error) {
	var runs []*workerRun
	defer func() {
		for _, r := range runs {
			err = errors.Join(err, r.close())
		}
	}()
	var far []*proxy
	var workers []*farm.Worker
	for _, s := range settings {
		r, err := f.newWorker(ctx, s)
		if err != nil {
			return err
		}
		runs, far, workers = append(runs, r), append(far, r.far), append(workers, r.worker)
	}
	if err := f.serve(ctx, func() error { return use(far) }, workers...); err != nil {
		return err
	}
	for _, r := range runs {
		if r.keep != "" {
			err = errors.Join(err, copyMemory(r.keep, r.worker.Data))
		}
	}
	return err
}

// A workerRun is a worker that is being measured.
type workerRun struct {
	setting
	far    *proxy
	worker *farm.Worker
}

// newWorker makes a worker, which is not started; the caller closes it.
func (f *benchFarm) newWorker(ctx context.Context, s setting) (*workerRun, error) {
	f.starts++
	data := filepath.Join(f.dir, fmt.Sprintf("worker-%d", f.starts))
	if err := os.Mkdir(data, 0o755); err != nil {
		return nil, err
	}
	far, err := startProxy(ctx, f.address, s.distance)
	if err != nil {
		return nil, errors.Join(err, os.Remove(data))
	}
	w := &workerRun{setting: s, far: far, worker: &farm.Worker{
		Scheduler: "grpc://" + f.address, Storage: "grpc://" + far.address(),
		ID: map[string]string{"bench": fmt.Sprint(f.starts)}, Platform: s.platform,
		Data: data, CacheDir: filepath.Join(f.dir, fmt.Sprintf("cache-%d", f.starts)), CacheSize: "8G",
		Slots: s.slots, SizeClass: 1, ExecFilesystem: s.method, Prefetch: !s.plain, Logger: f.log,
		NoCompression: s.distance.bandwidth == 0, // else bytes cost nothing
	}}
	if s.lends {
		w.worker.ServeCache = "127.0.0.1:0"
	}
	if s.memory != "" {
		if err := copyMemory(data, s.memory); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

// close removes what a worker kept, which has ended.
func (w *workerRun) close() error {
	w.far.close()
	return errors.Join(os.RemoveAll(w.worker.Data), os.RemoveAll(w.worker.CacheDir))
}

// A serving is a worker that has its launchers.
type serving struct {
	*farm.Started
	platform map[string]string
	ready    chan struct{} // closed when it takes actions
	ended    chan error
}

// serve calls use while workers run.
func (f *benchFarm) serve(ctx context.Context, use func() error, workers ...*farm.Worker) (err error) {
	var all []*serving
	defer func() {
		for _, s := range all {
			err = errors.Join(err, s.Close(ctx))
		}
	}()
	for _, w := range workers { // launchers of all, before any of them mounts something
		started, err := w.Start(ctx)
		if err != nil {
			return fmt.Errorf("start worker: %w", err)
		}
		all = append(all, &serving{started, w.Platform, make(chan struct{}), make(chan error, 1)})
	}
	drain, stop := context.WithCancel(ctx)
	defer stop()
	for _, s := range all {
		go func() { s.ended <- s.Run(drain, ctx, func() { close(s.ready) }) }()
	}
	for _, s := range all {
		err = errors.Join(err, f.greet(ctx, s))
	}
	if err == nil {
		err = use()
	}
	stop()
	for _, s := range all {
		err = errors.Join(err, <-s.ended)
	}
	return err
}

// greet waits until a worker is ready and has it run something.
func (f *benchFarm) greet(ctx context.Context, s *serving) error {
	select {
	case <-s.ready:
		_, err := f.execute(ctx, &benchAction{
			command: &repb.Command{Arguments: []string{"/bin/true"}}, platform: s.platform,
		})
		return err
	case err := <-s.ended:
		s.ended <- nil
		return errors.Join(fmt.Errorf("worker ended: %w", err), ctx.Err())
	}
}

// copyMemory copies what a worker keeps for later: its whole data folder without
// the cache, as no worker is using it.
func copyMemory(to, from string) error {
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
		return fmt.Errorf("copy what a worker remembers: %w", err)
	}
	return nil
}

// A benchAction is one action, whose inputs are in the storage.
type benchAction struct {
	command *repb.Command
	root    digest.Digest
	who     *repb.RequestMetadata
	// platform is that of the workers that may run it; nil: of those without one.
	platform map[string]string
}

// A result is what one action took and read.
type result struct {
	seconds float64 // of the whole Execute
	ran     float64 // seconds of them in which the command ran and did not wait for storage
	cpu     float64 // seconds of the command and all that it started
	use     *actionstats.InputRoot
	ahead   *actionstats.Prefetch
}

// execute runs an action although its result may be cached. The time does not
// include bringing its messages to the storage.
func (f *benchFarm) execute(ctx context.Context, a *benchAction) (r result, err error) {
	inputs := &client.Inputs{Root: a.root}
	if a.root == (digest.Digest{}) {
		inputs = nil
	}
	began := time.Now()
	outcome, err := client.Execute(ctx, f.conn, client.Request{
		Function: function, Command: a.command, Inputs: inputs, SkipCacheLookup: true, Metadata: a.who,
		Platform: client.PlatformOf(a.platform),
	})
	if err != nil {
		return r, err
	}
	r.seconds = (time.Since(began) - outcome.Upload).Seconds()
	if outcome.Status != nil || outcome.Result.GetExitCode() != 0 {
		said, _ := client.Output(ctx, f.storage, function, outcome.Result.GetStderrRaw(), outcome.Result.GetStderrDigest())
		return r, fmt.Errorf("%s: exit code %d: %.2000s: %w", a.command.GetArguments()[0],
			outcome.Result.GetExitCode(), said, errors.Join(outcome.Status))
	}
	r.ran = outcome.Result.GetExecutionMetadata().GetVirtualExecutionDuration().AsDuration().Seconds()
	r.use, r.ahead = &actionstats.InputRoot{}, &actionstats.Prefetch{}
	usage := &resourceusage.POSIXResourceUsage{}
	for _, packed := range outcome.Result.GetExecutionMetadata().GetAuxiliaryMetadata() {
		for _, known := range []proto.Message{r.use, r.ahead, usage} {
			if packed.MessageIs(known) {
				err = errors.Join(err, packed.UnmarshalTo(known))
			}
		}
	}
	r.cpu = (usage.GetUserTime().AsDuration() + usage.GetSystemTime().AsDuration()).Seconds()
	return r, err
}
