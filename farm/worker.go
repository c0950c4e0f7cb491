package farm

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/worker"
)

// A Worker is the configuration of a worker.
type Worker struct {
	Scheduler, Storage string // grpc://HOST:PORT or grpcs://HOST:PORT; Storage with options
	ActionCache        string // as Storage; empty: there
	HTTP               string // HOST:PORT for health and metrics; empty: none
	SizeClass          uint32
	Slots              int // commands at once; 0: one for each CPU
	// FetchWidth and ReportWidth are as in worker.Options; a negative ReportWidth
	// is as many as there are slots.
	FetchWidth, ReportWidth int
	Platform                map[string]string
	InstancePrefix          string
	ID                      map[string]string // empty: the host's name
	Data                    string
	CacheDir, Mount         string // empty: below Data
	CacheSize               string
	FreePercent             int // of the free space, without CacheSize; 0 is 80
	Scrub                   Scrub
	Logger                  *zap.Logger
	Ports                   serve.Ports
	// Callers bound what is taken in at ServeCache, and say how much memory there is.
	Callers serve.Callers
	Tracing serve.Tracing
	// ServeCache is HOST:PORT at which other workers read the store; empty: they do not. ConfigFile is a
	// scheduler's, of which the access counts there and at HTTP; empty: none.
	ServeCache, ConfigFile string
	// Client is whom scheduler, storage and profiles are shown.
	Client dial.Client
	// ExecFilesystem is how inputs get to where commands see them; empty: vfs.Auto.
	ExecFilesystem vfs.Method
	// Prefetch lets what similar actions read be fetched ahead, and be remembered.
	Prefetch bool
	// State is where that is kept.
	State State
	// Reuse says whether a run may be spared; empty: ReuseOff.
	Reuse Reuse
	// ReuseEpoch is worker.Setting.Epoch.
	ReuseEpoch string
	// MemoryCache bounds the memory for directories, and is four times that for profiles, with a unit;
	// empty: the defaults of both.
	MemoryCache string
	// VerifyEvery is for how long content counts as verified; 0: 24 h; less: no longer than one use.
	VerifyEvery time.Duration
	// UpperMemory is vfs.Options.UpperMemory, with a unit; empty: none.
	UpperMemory string
	// Sandbox is auto (also if empty), namespaces or none; Network on or off (if empty, off in
	// a sandbox); User a name, UID:GID or FIRST-LAST; Policies a file. See IsolationFlags.
	Sandbox, Network, User, Policies string
	// Hide are more files and folders that commands are not to see; Show those of the machine that
	// they see besides sandbox.DefaultShow.
	Hide, Show []string
	// HideFiles are files that the program reads, with what is beside them.
	HideFiles []string
	// NoCompression is for storage on this machine.
	NoCompression bool
	// SlotCPUs and SlotMemory (with a unit) are what each slot has; zero: an equal share.
	SlotCPUs   float64
	SlotMemory string
	// Cgroup is auto, require or off; empty: auto.
	Cgroup string
	// MaxOutputBytes and MaxScratch (with a unit) and MaxOutputFiles bound what an
	// action may return, or write at all.
	MaxOutputBytes, MaxScratch string
	MaxOutputFiles             int
}

// Flags registers the flags of a worker.
func (w *Worker) Flags(f *pflag.FlagSet) {
	f.StringVar(&w.Scheduler, "scheduler", "grpc://127.0.0.1:8980", "`address` of the scheduler, grpc://HOST:PORT or grpcs://HOST:PORT; several with commas: whichever answers")
	f.StringVar(&w.Storage, "storage", "grpc://127.0.0.1:8980", "`address` of the REv2 storage, grpc://HOST:PORT or grpcs://HOST:PORT, with options: see docs/STORAGE.md")
	dial.ActionCacheFlag(f, &w.ActionCache)
	f.StringVar(&w.HTTP, "http", "127.0.0.1:8982", "`address` for health and metrics over HTTP; empty: none")
	f.StringVar(&w.Data, "data", flags.DefaultData("forerunner-worker"), "`folder` for everything that is kept")
	f.StringVar(&w.CacheDir, "cache-dir", "", "`folder` of the worker's store (default DATA/cas)")
	f.StringVar(&w.Mount, "mount", "", "`folder` where input roots are mounted (default DATA/mount)")
	f.StringVar(&w.CacheSize, "cache-size", "", "bytes that the worker's store may use, e.g. `20G` (default 80% of what is free)")
	f.IntVar(&w.Slots, "slots", 1, "commands at once; 0: one for each CPU")
	f.StringVar(&w.InstancePrefix, "instance-prefix", "", "serve this instance `name` and those below it only")
	w.Scrub.Flags(f)
	w.Ports.Flags(f)
	w.Callers.Flags(f)
	w.Tracing.Flags(f)
	w.Client.Flags(f)
	w.PipelineFlags(f)
	w.FilesystemFlags(f)
	w.LimitFlags(f)
	w.IsolationFlags(f)
	w.IdentityFlags(f)
	w.CacheFlags(f)
	stateFlag(f, &w.State, "where to remember what actions read")
}

// PipelineFlags registers the flags that say what goes on beside commands.
func (w *Worker) PipelineFlags(f *pflag.FlagSet) {
	f.IntVar(&w.FetchWidth, "fetch-width", 0, "`actions` accepted beyond those in slots, to fetch inputs until a slot is free")
	f.IntVar(&w.ReportWidth, "report-width", -1, "`actions` that store outputs while their slot runs the next (default as many as slots)")
}

// FilesystemFlags registers the flag that says what input roots are made of.
func (w *Worker) FilesystemFlags(f *pflag.FlagSet) {
	w.ExecFilesystem = vfs.Auto
	f.Var(&w.ExecFilesystem, "exec-filesystem", "`method` by which inputs get to commands: fuse, as they are read; "+
		"hardlink, all before the start; auto, fuse where this machine can")
	f.StringVar(&w.UpperMemory, "upper-memory", "", "keep what an action writes in memory, up to this `size` each (512MiB), "+
		"charged to its slot (default on the disk, from where outputs need no copy)")
	flags.VerifyEvery(f, &w.VerifyEvery)
	f.StringVar(&w.MemoryCache, "memory-cache", "", "memory for directories of input roots that were used lately, e.g. `64M`, and "+
		"a quarter as much for what actions read (default 256M, or an eighth of --memory-limit)")
	f.BoolVar(&w.Prefetch, "prefetch", true, "remember what actions read, and fetch it ahead of the next ones of their kind")
	w.Reuse = ReuseOff
	f.Var(&w.Reuse, "reuse", "`when` a former result may stand for a run: off, never; profile, when the former run looked at "+
		"nothing of its inputs that has changed since")
	f.StringVar(&w.ReuseEpoch, "reuse-epoch", "", "`text` to change when something of the machine changed that commands use: "+
		"no run from before is reused")
}

// IdentityFlags registers the flags that say who a worker is.
func (w *Worker) IdentityFlags(f *pflag.FlagSet) {
	f.Uint32Var(&w.SizeClass, "size-class", 1, "how large this worker is relative to others")
	f.StringToStringVar(&w.Platform, "platform", nil, "platform property `name=value` that actions must ask for; repeatable")
	f.StringToStringVar(&w.ID, "id", nil, "identity of this worker, `key=value`; repeatable (default host=HOSTNAME,data=DATA)")
}

// A Started worker has its launchers, and may make mounts.
type Started struct {
	w         *Worker
	plan      slotPlan
	slots     []*cgroup.Slot
	launcher  []*runner.Launcher
	guard     *mounts.Guard // nil: there are no mounts to guard
	isolation isolation
	retired   retired
	replaced  int // how many groups of slots were left to the kernel
}

// Start starts the launchers, which must happen before the process has a mount.
func (w *Worker) Start(ctx context.Context) (_ *Started, err error) {
	switch {
	case w.Slots < 0:
		return nil, fmt.Errorf("--slots: %d commands at once", w.Slots)
	case w.Slots == 0:
		w.Slots = runtime.NumCPU()
	}
	if w.ReportWidth < 0 {
		w.ReportWidth = w.Slots
	}
	s := &Started{w: w, retired: newRetired(w.Logger)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(ctx))
		}
	}()
	if err := w.absolute(); err != nil {
		return nil, err
	}
	// A dead worker that cannot end has more than its mounts: groups, files, locks.
	if err := mounts.Free(w.below(w.Mount, "mount")); err != nil {
		return nil, err
	}
	name := fnv.New64a()
	_, _ = name.Write([]byte(w.Data))
	if s.plan, err = w.planSlots(strconv.FormatUint(name.Sum64(), 16)); err != nil {
		return nil, err
	}
	if s.isolation, err = w.checkIsolation(); err != nil {
		return nil, err
	}
	if s.isolation.sandbox == nil {
		if err := s.doWithoutSandbox(); err != nil {
			return nil, err
		}
	}
	if w.ExecFilesystem != vfs.HardLink {
		if s.guard, err = mounts.StartGuard(w.below(w.Mount, "mount")); err != nil {
			return nil, err
		}
	}
	for i := range w.Slots {
		slot, err := s.plan.slot(i, 0)
		if err != nil {
			return nil, err
		}
		s.slots = append(s.slots, slot)
		launcher, err := s.tryLaunch(ctx, i)
		if err != nil {
			return nil, err
		}
		s.launcher = append(s.launcher, launcher)
	}
	if err := s.launcher[0].NotApart(); err != nil && s.isolation.sandbox != nil {
		w.Logger.Warn("commands with a network can reach sockets of each other", zap.NamedError("missing", err),
			zap.String("costs", "no folder serves two actions, which makes short ones slower, and outputs are copied"),
			zap.String("to_have_it", "Linux 6.12 or later with Landlock, or --network=off"))
	}
	return s, nil
}

// absolute makes folders absolute: launchers want that, and Data tells this worker from others.
func (w *Worker) absolute() (err error) {
	for _, dir := range []*string{&w.Data, &w.CacheDir, &w.Mount} {
		if *dir == "" {
			continue
		}
		if *dir, err = filepath.Abs(*dir); err != nil {
			return err
		}
	}
	return nil
}

// Run serves the scheduler until ctx ends, then drains; abort stops running
// commands. ready, if any, is called when the worker is about to ask for work.
func (s *Started) Run(ctx, abort context.Context, ready func()) (err error) {
	w := s.w
	upperMemory, outputs, err := w.writes()
	if err != nil {
		return err
	}
	if err := w.checkReuse(); err != nil {
		return err
	}
	registry := serve.NewRegistry()
	roots, store, err := s.openRoots(upperMemory, registry)
	if err != nil {
		return err
	}
	fetches, err := w.openFetches(store, registry)
	if err != nil {
		return errors.Join(err, store.Close(), roots.Close())
	}
	defer func() {
		defer context.AfterFunc(abort, roots.LeaveTrash)()
		fetches.Close()
		err = errors.Join(err, store.Close(), roots.Close())
	}()
	work, err := w.makeWorkDir()
	if err != nil {
		return err
	}
	schedulerConn, storage, err := w.dial()
	if err != nil {
		return err
	}
	defer schedulerConn.Close()
	defer storage.Close()
	started := &atomic.Pointer[worker.Worker]{}
	can := readiness(ctx, roots, store, work)
	can.Add("scheduler "+w.Scheduler, taken(schedulerConn, started))
	load := &workerLoad{worker: started}
	blobs, err := w.Scrub.open(store, nil, scrubLoad{load.busy, w.Logger, registry})
	if err != nil {
		return err
	}
	cache, stopServing, err := w.serve(ctx, abort, serve.Shown{Registry: registry, Ready: can}, store, &load.readers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServing()) }()
	id, err := w.identity()
	if err != nil {
		return err
	}
	profiles, closeProfiles, err := w.openProfiles()
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	defer func() {
		flushProfiles(abort, profiles)
		err = errors.Join(err, closeProfiles())
	}()
	tracer, endTracing, err := w.Tracing.Open(ctx, abort, "forerunner-worker", w.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, endTracing()) }()
	setting, err := s.setting()
	if err != nil {
		return err
	}
	records, closeRecords := w.openReuse()
	defer func() { err = errors.Join(err, closeRecords()) }()
	work1, err := worker.New(worker.Options{
		Profiles: profiles, Reuse: records, Setting: setting, Outputs: outputs,
		ID: id, InstancePrefix: w.InstancePrefix, Platform: client.PlatformOf(w.Platform), SizeClass: w.SizeClass,
		Scheduler: remoteworker.NewOperationQueueClient(schedulerConn),
		Live:      live.NewOutputsClient(schedulerConn),
		Store:     store, StoreHealth: blobs.health, Fetches: fetches,
		Storage: storage.Client,

		CacheAddress: cache, DialNeighbour: w.dialNeighbour,

		Roots:     roots,
		Launchers: slices.Clone(s.launcher), FetchWidth: w.FetchWidth, ReportWidth: w.ReportWidth,
		Relaunch:  s.relaunch,
		WorkDir:   work,
		Isolation: s.isolation.defaults(),
		Logger:    w.Logger,
		Metrics:   registry,
		Tracer:    tracer,
	})
	if err != nil {
		return err
	}
	defer blobs.run()()
	if ready != nil {
		ready()
	}
	started.Store(work1)
	return work1.Run(ctx, abort)
}

// readiness returns what a worker checks of itself.
func readiness(ctx context.Context, roots *vfs.FS, store *disk.Store, work string) *serve.Readiness {
	can := &serve.Readiness{}
	can.Add("worker", serve.Serving(ctx))
	can.Add("input roots", roots.Check)
	can.Add("store", func() error { return serve.Writable(store.TempDir()) })
	can.Add("work folder", func() error { return serve.Writable(work) })
	return can
}

// taken returns a probe that fails while the scheduler does not take the worker's calls.
func taken(conn *grpc.ClientConn, started *atomic.Pointer[worker.Worker]) func() error {
	return func() error {
		w := started.Load()
		if w == nil {
			return errors.New("the worker has not asked for work yet")
		}
		if err := w.Refused(); err != nil {
			return err
		}
		if state := conn.GetState(); state != connectivity.Ready {
			return fmt.Errorf("the connection is %s", strings.ToLower(state.String()))
		}
		return nil
	}
}

// openRoots opens what input roots are made in, and the store that they are made of. Who gets them
// closes the store first.
func (s *Started) openRoots(upperMemory int64, registry prometheus.Registerer) (*vfs.FS, *disk.Store, error) {
	w := s.w
	size, err := flags.ParseSize(w.CacheSize)
	if err != nil {
		return nil, nil, fmt.Errorf("--cache-size: %w", err)
	}
	cacheDir := w.below(w.CacheDir, "cas")
	if err := os.MkdirAll(cacheDir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("--cache-dir: %w", err)
	}
	// Roots first: what a dead worker left mounted may be below the store.
	var store *disk.Store
	roots, err := vfs.Open(vfs.Options{
		MountDir: w.below(w.Mount, "mount"), UpperDir: filepath.Join(w.Data, "upper"), Logger: w.Logger, Metrics: registry,
		Method: w.ExecFilesystem, UpperMemory: upperMemory, Owner: s.isolation.users.Owner(), VerifyEvery: w.VerifyEvery,
		Namespaces: s.isolation.namespaces,
		Blobs: &vfs.BlobFolder{
			Dir: cacheDir, Path: disk.BlobPath, Parse: disk.ParseBlobPath,
			Used: func(d digest.Digest) {
				if store != nil { // else roots are only being tried out
					store.Contains(d)
				}
			},
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("input roots: %w", err)
	}
	store, err = disk.Open(cacheDir, disk.Options{
		MaxBytes: size, FreePercent: w.FreePercent, VerifyEvery: w.VerifyEvery,
		Logger: w.Logger, Metrics: registry,
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("worker's store: %w", err), roots.Close())
	}
	return roots, store, nil
}

// openFetches returns what fetches into the store.
func (w *Worker) openFetches(store *disk.Store, registry prometheus.Registerer) (*fetch.Group, error) {
	memory, err := w.memoryCache()
	if err != nil {
		return nil, err
	}
	return fetch.NewGroup(store, fetch.Options{DirectoryCacheBytes: memory, Metrics: registry})
}

// dial makes the connections to the scheduler and to storage.
func (w *Worker) dial() (scheduler *grpc.ClientConn, storage *dial.Storage, err error) {
	w.Client.Logger = w.Logger
	if scheduler, err = w.Client.Dial(w.Scheduler); err != nil {
		return nil, nil, fmt.Errorf("--scheduler: %w", err)
	}
	storage, err = w.Client.OpenStorage(w.Storage, w.ActionCache, casclient.Options{Logger: w.Logger, NoCompression: w.NoCompression})
	if err != nil {
		return nil, nil, errors.Join(err, scheduler.Close())
	}
	return scheduler, storage, nil
}

// makeWorkDir makes the folder for temporary files, empty.
func (w *Worker) makeWorkDir() (string, error) {
	dir := filepath.Join(w.Data, "work")
	if err := errors.Join(folder.RemoveTree(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", fmt.Errorf("work folder: %w", err)
	}
	return dir, nil
}

func (w *Worker) below(chosen, name string) string {
	if chosen != "" {
		return chosen
	}
	return filepath.Join(w.Data, name)
}

// identity is what tells this worker from all others.
func (w *Worker) identity() (map[string]string, error) {
	if len(w.ID) > 0 {
		return w.ID, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("host name: %w (give --id)", err)
	}
	return map[string]string{names.HostKey: host, names.DataKey: w.Data}, nil
}
