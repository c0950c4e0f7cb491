package farm

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cgroup"
	"github.com/forerunner-build/forerunner/crew"
	"github.com/forerunner-build/forerunner/farm/datafolder"
	"github.com/forerunner-build/forerunner/farm/scrub"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/prefetch"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/proto/remoteworker"
	"github.com/forerunner-build/forerunner/runner"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/vfs/mounts"
	"github.com/forerunner-build/forerunner/worker"
	"github.com/forerunner-build/forerunner/worker/machine"
)

// A Started worker has its launchers, and may now make mounts.
type Started struct {
	w         *Worker
	checked   checkedWorker
	plan      slotPlan
	slots     []*cgroup.Slot
	launcher  []*runner.Launcher
	data      *datafolder.Folder
	guard     *mounts.Guard // nil: there are no mounts to guard
	isolation isolation
	inherited []string          // with --reuse: limits that commands inherit
	examined  *machine.Examined // nil: the machine is not examined
	retired   retired
	crew      *crew.Crew
	replaced  int // how many groups of slots were left to the kernel
}

// Start starts the launchers, which must happen before the process has a mount. It creates nothing if
// the settings are wrong.
func (w *Worker) Start(ctx context.Context) (*Started, error) {
	checked, err := w.check()
	if err != nil {
		return nil, err
	}
	if w.Scheduler != "" { // else Join connects it
		if checked.protect, err = w.checkCalls(); err != nil {
			return nil, err
		}
	}
	return w.start(ctx, checked)
}

// start is Start with checked settings.
func (w *Worker) start(ctx context.Context, checked checkedWorker) (_ *Started, err error) {
	s := &Started{w: w, checked: checked, retired: newRetired(w.Logger), crew: crew.New(w.WaitingHelpers)}
	defer func() {
		if err != nil {
			err = errors.Join(datafolder.WithRoom(err), s.Close(ctx))
		}
	}()
	// Whatever the caller's is: commands see the modes of their folders, and pass through ours.
	unix.Umask(0o022)
	// A dead worker that cannot end has more than its mounts: groups, files, locks.
	if err := mounts.Free(w.below(w.Mount, "mount")); err != nil {
		return nil, datafolder.Advised(err)
	}
	if s.data, err = datafolder.Open(ctx, w.Data); err != nil {
		return nil, err
	}
	w.Disk.Spread(w.Data, w.Logger)
	name := fnv.New64a()
	_, _ = name.Write([]byte(w.Data))
	if s.plan, err = w.openSlots(strconv.FormatUint(name.Sum64(), 16), checked.limits); err != nil {
		return nil, err
	}
	if s.isolation, err = w.openIsolation(checked); err != nil {
		return nil, err
	}
	if w.Reuse == ReuseProfile {
		if s.inherited, err = sandbox.Inherited(); err != nil {
			return nil, fmt.Errorf("--reuse=%s: %w", w.Reuse, err)
		}
	}
	s.examine()
	if w.ExecFilesystem != vfs.HardLink {
		if s.guard, err = mounts.StartGuard(w.below(w.Mount, "mount"), mounts.GuardOptions{Form: w.LogForm, Logger: w.Logger}); err != nil {
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
	s.isolation.warnOfUsers(w.Logger)
	if err := s.launcher[0].NotApart(); err != nil && s.isolation.sandbox != nil {
		w.Logger.Warn("commands with network access can reach sockets of each other", zap.NamedError("missing", err),
			zap.String("costs", "no folder serves two actions, which makes short ones slower, and outputs are copied"),
			zap.String("remedy", "Linux 6.12 or later with Landlock, or tuning.network: off"))
	}
	return s, nil
}

// Run serves the scheduler until ctx ends, then drains; abort stops running
// commands. ready, if any, is called when the worker is about to ask for work.
func (s *Started) Run(ctx, abort context.Context, ready func()) (err error) {
	w := s.w
	registry := serve.NewRegistry()
	if w.joined != nil {
		registry = w.joined.metrics
	}
	var open closers
	defer func() { err = errors.Join(datafolder.WithRoom(err), open.close()) }()
	o, err := s.keep(abort, registry, &open)
	if err != nil {
		return err
	}
	schedulerConn, storage, err := w.dial()
	if err != nil {
		return err
	}
	open.add(func() error { _ = schedulerConn.Close(); storage.Close(); return nil })
	started := &atomic.Pointer[worker.Worker]{}
	if w.joined != nil {
		started = &w.joined.worker
	}
	can := w.readiness(ctx, schedulerConn, started)
	can.Add("guard of input roots", s.guard.Missing)
	load := &scrub.WorkerLoad{Worker: started}
	blobs, runScrubber, err := w.scrubbed(o.store, scrub.Load{Busy: load.Busy, Logger: w.Logger, Metrics: registry})
	if err != nil {
		return err
	}
	cache, stopServing, err := s.serve(ctx, abort, serve.Shown{Registry: registry, Ready: can}, o.store, &load.Readers)
	if err != nil {
		return err
	}
	open.add(stopServing)
	if err := s.know(ctx, abort, &o.Options, &open); err != nil {
		return err
	}
	if o.Shared, err = s.openShared(abort, schedulerConn, registry, &open); err != nil {
		return err
	}
	o.Scheduler, o.Live = remoteworker.NewOperationQueueClient(schedulerConn), live.NewOutputsClient(schedulerConn)
	o.StoreHealth, o.Storage, o.CacheAddress, o.DialPeer = blobs.Health, storage.Client, cache, w.dialPeer
	work, err := worker.New(o.Options)
	if err != nil {
		return err
	}
	defer runScrubber()()
	if ready != nil {
		ready()
	}
	started.Store(work)
	return work.Run(ctx, abort)
}

// A keeping has the parts of a worker, with its store.
type keeping struct {
	worker.Options
	store *disk.Store
}

// keep opens the worker's resources on its machine: folders, input roots, store, launchers.
func (s *Started) keep(abort context.Context, registry *prometheus.Registry, open *closers) (*keeping, error) {
	w := s.w
	roots, store, err := s.openRoots(registry)
	if err != nil {
		return nil, err
	}
	open.add(func() error {
		defer context.AfterFunc(abort, roots.LeaveTrash)()
		if w.storageHere() != nil { // its owner closes it
			return roots.Close()
		}
		return errors.Join(store.Close(), roots.Close())
	})
	fetches, err := w.openFetches(store, registry)
	if err != nil {
		return nil, err
	}
	open.add(func() error { fetches.Close(); return nil })
	work, err := w.makeWorkDir()
	if err != nil {
		return nil, err
	}
	return &keeping{store: store, Options: worker.Options{
		Outputs: s.checked.outputs, InstancePrefix: w.InstancePrefix, SizeClass: w.SizeClass,
		CommandsCome: w.CommandsCome, ResultsGo: w.ResultsGo && w.ActionCache == "" && w.storageAddress() == w.Scheduler, Browser: s.checked.browser,
		Platform: slices.Concat(w.Platform, w.Require).Proto(), Require: w.Require.Proto(),
		Store: store, StorageHere: w.storageHere() != nil, Fetches: fetches, Roots: roots,
		Launchers: slices.Clone(s.launcher), FetchWidth: w.FetchWidth, ReportWidth: w.ReportWidth, Relaunch: s.relaunch,
		Crew: s.crew, WorkDir: work, Checks: checks(store, roots), Isolation: s.isolation.defaults(), Logger: w.Logger, Metrics: registry,
	}}, nil
}

// know fills in the worker's identity, its earlier knowledge, and what it announces.
func (s *Started) know(ctx, abort context.Context, o *worker.Options, open *closers) (err error) {
	w := s.w
	o.ID = s.checked.id
	profiles, closeProfiles, err := w.openProfiles()
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	o.Profiles = profiles
	o.Limits = prefetch.NewLimits(prefetch.LimitsOptions{NoMentions: !w.PrefetchMentions})
	open.add(func() error {
		flushProfiles(abort, profiles)
		return closeProfiles()
	})
	var endTracing func() error
	if o.Tracer, endTracing, err = w.Tracing.Open(ctx, abort, "forerunner-worker", w.Logger); err != nil {
		return err
	}
	open.add(endTracing)
	if o.Setting, err = s.setting(); err != nil {
		return err
	}
	records, closeRecords := w.openReuse()
	o.Reuse = records
	open.add(closeRecords)
	return nil
}
