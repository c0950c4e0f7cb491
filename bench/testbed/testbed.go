package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/farm"
	"github.com/forerunner-build/forerunner/farm/scrub"
	"github.com/forerunner-build/forerunner/farm/storage"
	"github.com/forerunner-build/forerunner/vfs"
)

// A Farm is a scheduler with its storage in this process. Workers come and go. A set of workers can
// only start when no worker is running, because launchers must start while there is no mount.
type Farm struct {
	*Client        // nil until the farm serves
	Dir     string // folder for all data of the farm and its workers
	Log     *zap.Logger
	Address string
	Starts  int // number of started workers
	stop    context.CancelFunc
	ended   chan error
}

// Start starts a scheduler that stores its data in dir.
func Start(ctx context.Context, dir string) (*Farm, error) {
	log, err := NewLogger()
	if err != nil {
		return nil, err
	}
	// The scheduler runs until close, so that workers can drain after ctx has ended.
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	f := &Farm{Dir: dir, Log: log, stop: stop, ended: make(chan error, 1)}
	scheduler := farm.Scheduler{
		Listen: "127.0.0.1:0", Data: filepath.Join(dir, "farm"), Storage: storage.Settings{CacheSize: "8G"}, Logger: log,
		Disk: scrub.Disk{SpreadFolders: true},
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
	if f.Client, err = Dial(f.Address); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Close ends the farm. Its workers must have ended.
func (f *Farm) Close() error {
	var err error
	if f.Client != nil {
		err = f.Conn.Close()
	}
	f.stop()
	return errors.Join(err, <-f.ended)
}

// A Setting has the start settings of a worker.
type Setting struct {
	Distance Distance // distance to its storage
	Method   vfs.Method
	Slots    int
	Memory   string            // folder with the state of an earlier worker, to start with; empty: none
	Keep     string            // folder to save the state of this worker in; empty: do not save
	Plain    bool              // without recorder and prefetcher
	Platform client.Properties // platform of the actions that it gets; nil: actions without a platform
	Serves   bool              // serves blobs to other workers of the farm
}

// WithWorker calls use while a new worker with an empty store serves the farm. The worker has run
// an action, so it is connected to its storage, through far.
func (f *Farm) WithWorker(ctx context.Context, s Setting, use func(far *Proxy) error) error {
	return f.WithWorkers(ctx, []Setting{s}, func(far []*Proxy) error { return use(far[0]) })
}

// WithWorkers does the same as WithWorker with several workers at the same time.
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
			err = errors.Join(err, CopyMemory(r.Keep, r.worker.Data))
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

// newWorker makes a worker without starting it. The caller must close it.
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
	storage := "grpc://" + far.Address()
	if s.Distance.Bandwidth > 0 { // otherwise compression would hide the cost of bytes
		storage += "?compression=zstd"
	}
	w := &workerRun{Setting: s, far: far, worker: &farm.Worker{
		Scheduler: "grpc://" + f.Address, Storage: storage,
		ID: map[string]string{"bench": fmt.Sprint(f.Starts)}, Platform: s.Platform,
		Data: data, CacheDir: filepath.Join(f.Dir, fmt.Sprintf("cache-%d", f.Starts)), CacheSize: "8G",
		Slots: s.Slots, SizeClass: 1, ExecFilesystem: s.Method, Prefetch: !s.Plain, PrefetchMentions: !s.Plain, Logger: f.Log,
		Disk: scrub.Disk{SpreadFolders: true},
	}}
	if s.Serves {
		w.worker.ServeCache = "127.0.0.1:0"
	}
	if s.Memory != "" {
		if err := CopyMemory(data, s.Memory); err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	return w, nil
}

// close removes the data of a worker that has ended.
func (w *workerRun) close() error {
	w.far.Close()
	return errors.Join(os.RemoveAll(w.worker.Data), os.RemoveAll(w.worker.CacheDir))
}

// A serving is a worker with running launchers.
type serving struct {
	*farm.Started
	platform client.Properties
	ready    chan struct{} // closed when the worker accepts actions
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
	for _, w := range workers { // the launchers of all workers start before any worker mounts
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

// greet waits until a worker is ready and makes it run an action.
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

// CopyMemory replaces the folder to by a copy of a worker's data folder without its store. No
// worker may use either folder.
func CopyMemory(to, from string) error {
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
		return fmt.Errorf("copy what a worker remembers: %w", err)
	}
	return nil
}
