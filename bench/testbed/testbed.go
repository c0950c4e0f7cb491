package testbed

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

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/proto/actionstats"
	"github.com/forerunner-build/forerunner/proto/resourceusage"
	"github.com/forerunner-build/forerunner/vfs"
)

// A Farm is a scheduler with its storage in this process. Workers come and go, but
// only when there is none, for each needs launchers from a time without mounts.
type Farm struct {
	Dir     string // everything that the farm and its workers keep
	Log     *zap.Logger
	Address string
	Conn    *grpc.ClientConn
	Storage *casclient.Client
	Starts  int // of workers
	stop    context.CancelFunc
	ended   chan error
}

// Start starts a scheduler that keeps its data in dir.
func Start(ctx context.Context, dir string) (*Farm, error) {
	log, err := NewLogger()
	if err != nil {
		return nil, err
	}
	// It lasts until close, so that workers can drain after ctx has ended.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := &Farm{Dir: dir, Log: log, stop: stop, ended: make(chan error, 1)}
	scheduler := farm.Scheduler{
		Listen: "127.0.0.1:0", Data: filepath.Join(dir, "farm"), CacheSize: "8G", Logger: log,
	}
	address := make(chan string, 1)
	go func() {
		f.ended <- scheduler.Run(serving, serving, func(a string) error { address <- a; return nil })
	}()
	select {
	case f.Address = <-address:
	case err := <-f.ended:
		stop()
		return nil, fmt.Errorf("start farm: %w", errors.Join(err, serving.Err()))
	}
	if f.Conn, err = dial.Dial(f.Address); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	f.Storage = casclient.New(f.Conn, casclient.Options{NoCompression: true})
	return f, nil
}

// Close ends the farm, whose workers have ended.
func (f *Farm) Close() error {
	var err error
	if f.Conn != nil {
		err = f.Conn.Close()
	}
	f.stop()
	return errors.Join(err, <-f.ended)
}

// A Setting is what a worker is started with.
type Setting struct {
	Distance Distance // of its storage
	Method   vfs.Method
	Slots    int
	Memory   string            // folder with what a worker remembered that had the same data before; empty: nothing
	Keep     string            // folder that gets what this one remembers; empty: it is forgotten
	Plain    bool              // neither recorder nor prefetcher
	Platform client.Properties // of the actions that it gets; nil: those without one
	Serves   bool              // to other workers of the farm
}

// WithWorker calls use while a new worker with an empty cache serves the farm. The
// worker has run something, so that it is connected with its storage, through far.
func (f *Farm) WithWorker(ctx context.Context, s Setting, use func(far *Proxy) error) error {
	return f.WithWorkers(ctx, []Setting{s}, func(far []*Proxy) error { return use(far[0]) })
}

// WithWorkers is withWorker for several that serve at the same time.
func (f *Farm) WithWorkers(ctx context.Context, settings []Setting, use func(far []*Proxy) error) (err error) {
	var runs []*workerRun
	defer func() {
		for _, r := range runs {
			err = errors.Join(err, r.close())
		}
	}()
	var far []*Proxy
	var workers []*farm.Worker
	for _, s := range settings {
		r, err := f.newWorker(ctx, s)
		if err != nil {
			return err
		}
		runs, far, workers = append(runs, r), append(far, r.far), append(workers, r.worker)
	}
	if err := f.Serve(ctx, func() error { return use(far) }, workers...); err != nil {
		return err
	}
	for _, r := range runs {
		if r.Keep != "" {
			err = errors.Join(err, copyMemory(r.Keep, r.worker.Data))
		}
	}
	return err
}

// A workerRun is a worker that is being measured.
type workerRun struct {
	Setting
	far    *Proxy
	worker *farm.Worker
}

// newWorker makes a worker, which is not started; the caller closes it.
func (f *Farm) newWorker(ctx context.Context, s Setting) (*workerRun, error) {
	f.Starts++
	data := filepath.Join(f.Dir, fmt.Sprintf("worker-%d", f.Starts))
	if err := os.Mkdir(data, 0o755); err != nil {
		return nil, err
	}
	far, err := StartProxy(ctx, f.Address, s.Distance)
	if err != nil {
		return nil, errors.Join(err, os.Remove(data))
	}
	w := &workerRun{Setting: s, far: far, worker: &farm.Worker{
		Scheduler: "grpc://" + f.Address, Storage: "grpc://" + far.address(),
		ID: map[string]string{"bench": fmt.Sprint(f.Starts)}, Platform: s.Platform,
		Data: data, CacheDir: filepath.Join(f.Dir, fmt.Sprintf("cache-%d", f.Starts)), CacheSize: "8G",
		Slots: s.Slots, SizeClass: 1, ExecFilesystem: s.Method, Prefetch: !s.Plain, Logger: f.Log,
		NoCompression: s.Distance.Bandwidth == 0, // else bytes cost nothing
	}}
	if s.Serves {
		w.worker.ServeCache = "127.0.0.1:0"
	}
	if s.Memory != "" {
		if err := copyMemory(data, s.Memory); err != nil {
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
	platform client.Properties
	ready    chan struct{} // closed when it takes actions
	ended    chan error
}

// Serve calls use while workers run.
func (f *Farm) Serve(ctx context.Context, use func() error, workers ...*farm.Worker) (err error) {
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
func (f *Farm) greet(ctx context.Context, s *serving) error {
	select {
	case <-s.ready:
		_, err := f.Execute(ctx, &Action{
			Command: &repb.Command{Arguments: []string{"/bin/true"}}, Platform: s.platform,
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

// A Action is one action, whose inputs are in the storage.
type Action struct {
	Command *repb.Command
	Root    digest.Digest
	Who     *repb.RequestMetadata
	// platform is that of the workers that may run it; nil: of those without one.
	Platform client.Properties
}

// A Result is what one action took and read.
type Result struct {
	Seconds float64 // of the whole Execute
	Ran     float64 // seconds of them in which the command ran and did not wait for storage
	CPU     float64 // seconds of the command and all that it started
	Use     *actionstats.InputRoot
	Ahead   *actionstats.Prefetch
}

// Execute runs an action although its result may be cached. The time does not
// include bringing its messages to the storage.
func (f *Farm) Execute(ctx context.Context, a *Action) (r Result, err error) {
	inputs := &client.Inputs{Root: a.Root}
	if a.Root == (digest.Digest{}) {
		inputs = nil
	}
	began := time.Now()
	outcome, err := client.Execute(ctx, f.Conn, client.Request{
		Function: Function, Command: a.Command, Inputs: inputs, SkipCacheLookup: true, Metadata: a.Who,
		Platform: a.Platform.Proto(),
	})
	if err != nil {
		return r, err
	}
	r.Seconds = (time.Since(began) - outcome.Upload).Seconds()
	if outcome.Status != nil || outcome.Result.GetExitCode() != 0 {
		said, _ := client.Output(ctx, f.Storage, Function, outcome.Result.GetStderrRaw(), outcome.Result.GetStderrDigest())
		return r, fmt.Errorf("%s: exit code %d: %.2000s: %w", a.Command.GetArguments()[0],
			outcome.Result.GetExitCode(), said, errors.Join(outcome.Status))
	}
	r.Ran = outcome.Result.GetExecutionMetadata().GetVirtualExecutionDuration().AsDuration().Seconds()
	r.Use, r.Ahead = &actionstats.InputRoot{}, &actionstats.Prefetch{}
	usage := &resourceusage.POSIXResourceUsage{}
	for _, packed := range outcome.Result.GetExecutionMetadata().GetAuxiliaryMetadata() {
		for _, known := range []proto.Message{r.Use, r.Ahead, usage} {
			if packed.MessageIs(known) {
				err = errors.Join(err, packed.UnmarshalTo(known))
			}
		}
	}
	r.CPU = (usage.GetUserTime().AsDuration() + usage.GetSystemTime().AsDuration()).Seconds()
	return r, err
}

// Function is that of all blobs.
const Function = digest.SHA256
