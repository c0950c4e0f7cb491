package farm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	"github.com/forerunner-build/forerunner/cas/fetch"
	"github.com/forerunner-build/forerunner/client"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/flags"
	"github.com/forerunner-build/forerunner/farm/scrub"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/logline"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/sandbox"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/vfs"
	"github.com/forerunner-build/forerunner/vfs/folder"
	"github.com/forerunner-build/forerunner/worker"
	"github.com/forerunner-build/forerunner/worker/health"
	"github.com/forerunner-build/forerunner/worker/historical"
)

// A Worker is the configuration of a worker. The tags are the users' documentation of each setting.
type Worker struct {
	// Scheduler and Storage are empty for a worker that Join connects.
	Scheduler      string         `flag:"scheduler" group:"Farm" unit:"ADDRESS" default:"grpc://127.0.0.1:8980" doc:"Address of the scheduler, grpc://HOST:PORT or grpcs://HOST:PORT; a list, separated by commas, is tried in turn"`
	Storage        string         `flag:"storage" unit:"ADDRESS" otherwise:"that of --scheduler" doc:"Address of the REv2 storage, grpc://HOST:PORT or grpcs://HOST:PORT, with options (docs/STORAGE.md)"`
	ActionCache    string         `tuning:"action_cache" unit:"ADDRESS" otherwise:"that of --storage" doc:"Address of the action cache, if it differs from that of the storage"`
	BrowserURL     string         `tuning:"browser_url" unit:"URL" otherwise:"none" doc:"Address of Buildbarn's pages (bb_browser, bb-portal) for this storage: the worker stores uncached results for them, and messages link to them"`
	State          state.Location `flag:"state" unit:"LOCATION" otherwise:"bolt:DATA/records.db" doc:"Store of profiles: bolt:PATH, redis://HOST:PORT (also rediss, redis+sentinel, redis+cluster) or grpc(s)://HOST:PORT of a scheduler or of Buildbarn's services"`
	InstancePrefix string         `tuning:"instance_prefix" unit:"NAME" otherwise:"all" doc:"Instance name that the worker serves, with those below it"`

	SizeClass uint32 `flag:"size-class" group:"Worker" unit:"NUMBER" default:"1" doc:"Size of this worker relative to others; 0 for schedulers without size classes"`
	// Platform has the properties that actions may ask for, in addition to the detected ones;
	// Require those that they must ask for.
	Platform client.Properties `flag:"platform" unit:"NAME=VALUE" otherwise:"none" doc:"Platform property of this worker; repeatable, also with one name. OSFamily and ISA are detected"`
	Require  client.Properties `tuning:"require" moved:"true" unit:"NAME=VALUE" otherwise:"none" doc:"Platform properties of this worker that every action must ask for, such as gpu=1"`
	// ID is empty for the host's name and the data folder.
	ID map[string]string `flag:"id" unit:"KEY=VALUE" otherwise:"host=HOSTNAME,data=DATA" doc:"Identity of this worker, different from that of all others; repeatable"`

	// Slots is the number of concurrent commands; 0: one for each CPU.
	Slots int `flag:"slots" unit:"NUMBER" min:"0" default:"1" doc:"Number of commands that run at once; 0 is one for each CPU"`

	Data        string     `flag:"data" group:"Disk" unit:"FOLDER" otherwise:"/var/lib/forerunner-worker; in the cache folder of users other than root" doc:"Data folder of the worker"`
	CacheSize   string     `flag:"cache-size" unit:"SIZE" otherwise:"80% of the free space" doc:"Size of the worker's store"`
	FreePercent int        // of the free space, without CacheSize; 0 is 80
	CacheDir    string     `tuning:"cache_dir" unit:"FOLDER" otherwise:"DATA/cas" doc:"Folder of the worker's store"`
	Mount       string     `tuning:"mount" unit:"FOLDER" otherwise:"DATA/mount" doc:"Folder where input roots are mounted"`
	Disk        scrub.Disk `settings:"inline"`

	Sandbox string `flag:"sandbox" group:"Commands" oneof:"auto namespaces none" default:"auto" doc:"Sandbox of commands: auto is namespaces if this machine supports them"`
	// Network is empty for off in a sandbox, and on without one.
	Network string `tuning:"network" moved:"true" oneof:"on off" otherwise:"off; on without a sandbox" doc:"Network access of actions that do not ask for network=on or off"`
	// User is a name, UID:GID or FIRST-LAST.
	User string `flag:"user" unit:"USER" otherwise:"as root in a sandbox, root of a user namespace of its own; else the worker's" doc:"User of commands: a name; UID:GID; or FIRST-LAST, one user for each concurrent action"`
	// Sees says what commands in a sandbox see. HideFiles hides further files.
	Sees     sandbox.Options `settings:"inline"`
	Policies string          `flag:"policies" unit:"FILE" otherwise:"none" doc:"YAML file of execution policies: wrappers, environment, niceness, network, user and system calls by platform (docs/reference/policies.md)"`

	// SlotCPUs and SlotMemory are the resources of each slot; zero: an equal share.
	SlotCPUs   float64 `tuning:"slot_cpus" group:"Limits" unit:"NUMBER" min:"0" otherwise:"all, divided by the slots" doc:"CPUs of each slot, such as 2 or 0.5; whole CPUs are exclusive"`
	SlotMemory string  `tuning:"slot_memory" unit:"SIZE" otherwise:"nine tenths of all, divided by the slots" doc:"Memory of each slot, with swap"`
	Cgroup     string  `tuning:"cgroup" oneof:"auto require off" default:"auto" doc:"Cgroups for slots: require, all limits or the worker does not start; auto, the limits that this machine supports; off"`
	// MaxOutputBytes, MaxScratch and MaxOutputFiles limit the outputs of an action, and all its
	// files.
	MaxOutputBytes string `tuning:"max_output_bytes" unit:"SIZE" otherwise:"capacity of the worker's store" doc:"Total size of the outputs of one action, including holes"`
	MaxOutputFiles int    `tuning:"max_output_files" unit:"NUMBER" min:"0" default:"1000000" doc:"Number of output files of one action"`
	MaxScratch     string `tuning:"max_scratch" unit:"SIZE" otherwise:"capacity of the worker's store" doc:"Total size of all files that one action may write; each file and folder counts as at least 4 KiB"`

	// ExecFilesystem is vfs.Auto if it is empty.
	ExecFilesystem vfs.Method `tuning:"exec_filesystem" group:"Inputs" oneof:"auto fuse hardlink" default:"auto" doc:"How commands get inputs: fuse, on demand; hardlink, all before the start; auto, fuse if this machine supports it"`
	// ReadyRoots is negative for the number of actions that the worker has at a time.
	ReadyRoots int `tuning:"ready_roots" unit:"NUMBER" default:"-1" otherwise:"as many as actions at a time" doc:"Number of input roots that the worker mounts before the next actions need them, with FUSE and a sandbox; 0: each action waits for its mounts"`
	// GatheredImages is false for comparisons.
	GatheredImages bool   `tuning:"gathered_images" unit:"true|false" default:"true" doc:"Shows small folders that several input roots have by one metadata image, if they have 256 entries together"`
	CopiedRoots    string `tuning:"copied_roots" unit:"SIZE" default:"256K" doc:"Largest input root that commands in a sandbox get as a copy instead of through FUSE, if the worker has all of it; each file and folder counts as at least 4 KiB. 0: none"`
	// KeptFolders is false for comparisons.
	KeptFolders bool   `tuning:"kept_folders" unit:"true|false" default:"true" doc:"Empties the folders of an input root that is not mounted for the next one, instead of removing them"`
	UpperMemory string `tuning:"upper_memory" unit:"SIZE" otherwise:"none; outputs on the disk need no copy" doc:"Memory for the files that an action writes, charged to its slot, instead of the disk"`
	// MemoryCache limits the memory for directories, and is four times the limit for profiles.
	MemoryCache string `tuning:"memory_cache" unit:"SIZE" otherwise:"256M, or an eighth of memory_limit" doc:"Memory for recently used directories of input roots; profiles have a quarter as much"`
	// Reuse is ReuseOff if it is empty.
	Reuse Reuse `flag:"reuse" group:"Commands" oneof:"off profile" default:"off" doc:"When the result of an earlier run is reused: off, never; profile, if all inputs that the earlier run read are unchanged (docs/RUNNING_AHEAD.md)"`
	// ReuseEpoch is worker.Setting.Epoch.
	ReuseEpoch string `tuning:"reuse_epoch" unit:"TEXT" otherwise:"none" doc:"Any text; change it when tools of the machine change, and no earlier run is reused"`
	// ReuseMachine is "own" to share with no worker.
	ReuseMachine string `tuning:"reuse_machine" unit:"TEXT" otherwise:"a digest of all files of the machine that commands see" doc:"Name of the files on this machine, such as the digest of its image; workers with the same name share runs. own shares with no other worker"`

	// CommandsCome is false for comparisons, or to debug the messages of a scheduler.
	CommandsCome bool `tuning:"commands_with_actions" group:"Pipeline" unit:"true|false" default:"true" doc:"Asks a scheduler with embedded storage to send each Command with its action, which saves a call"`
	// ResultsGo is false for comparisons, or to debug calls of the action cache.
	ResultsGo  bool `tuning:"results_with_reports" unit:"true|false" default:"true" doc:"Sends each result to a scheduler with embedded storage with the report of the action's end, which writes it to the action cache: that saves a call"`
	FetchWidth int  `tuning:"fetch_width" unit:"NUMBER" min:"0" default:"0" doc:"Number of actions beyond the slots whose inputs the worker fetches until a slot is free"`
	// ReportWidth is negative for the number of slots.
	ReportWidth    int `tuning:"report_width" unit:"NUMBER" default:"-1" otherwise:"as many as slots" doc:"Number of actions that store outputs while their slot runs the next command"`
	WaitingHelpers int `tuning:"waiting_helpers" unit:"NUMBER" min:"0" max:"65536" default:"64" doc:"Number of goroutines that wait for further input roots and actions of the worker; 0: each has a new one"`
	// Prefetch turns profiles and prefetching on.
	Prefetch bool `tuning:"prefetch" unit:"true|false" default:"true" doc:"Remembers which files actions read, and prefetches them for similar actions"`
	// PrefetchMentions: with Prefetch, it also reads files to find what to prefetch.
	PrefetchMentions bool `tuning:"prefetch_mentions" unit:"true|false" default:"true" doc:"Without a profile, reads sources and scripts of an action to prefetch the files that they include or import"`

	HTTP       string      `flag:"http" group:"Ports" unit:"ADDRESS" default:"127.0.0.1:8982" doc:"Address for health and metrics over HTTP; empty is none"`
	ServeCache string      `flag:"serve-cache" unit:"ADDRESS" otherwise:"none" doc:"Address at which this worker serves its store to other workers, HOST:PORT as they reach it"`
	Ports      serve.Ports `settings:"inline"`
	// Client is the identity that this program presents to scheduler, storage and profiles.
	Client dial.Client `settings:"inline"`
	// Callers limit callers of ServeCache, and contain the memory limit.
	Callers serve.Callers `settings:"inline"`
	Tracing serve.Tracing `settings:"inline"`
	// ConfigFile has tokens and access for ServeCache and HTTP, and tuning.
	ConfigFile string `flag:"config" group:"General" unit:"FILE" otherwise:"none" doc:"YAML file with tuning settings, and with tokens and access for --serve-cache and --http (docs/reference/configuration.md); it may be the scheduler's"`

	Logger *zap.Logger
	// LogForm is how processes beside this one write to standard error; empty: for people.
	LogForm logline.Form
	joined  *joined // the scheduler in this process shows what it has; nil: there is none
	// HideFiles are files that the program reads; they and their neighbours are hidden from
	// commands.
	HideFiles []string
}

// Settings returns the settings of a worker. Its file may also be that of a scheduler.
func (w *Worker) Settings() *settings.Set {
	s := &Scheduler{}
	return w.own().Beside(s.own()).Beside(settings.Of(new(Together)))
}

func (w *Worker) own() *settings.Set {
	w.Data = flags.DefaultData("forerunner-worker")
	w.Tracing.FromEnvironment()
	return settings.Of(w).Checked(dial.Check, "scheduler").Checked(dial.CheckStorage, "storage").
		Checked(dial.CheckPort, "http", "serve-cache").Needed("data", "scheduler", "storage")
}

// absolute makes folders absolute: launchers need that, and Data identifies this worker.
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

// checks returns the worker's checks of its machine.
func checks(store *disk.Store, roots *vfs.FS) []health.Check {
	return []health.Check{
		{What: "store", Try: func() error { return folder.Writable(store.TempDir()) }},
		{What: "input roots", Try: roots.Check},
	}
}

// readiness returns the worker's checks of itself for /readyz.
func (w *Worker) readiness(ctx context.Context, scheduler dial.Conn, started *atomic.Pointer[worker.Worker]) *serve.Readiness {
	can := &serve.Readiness{}
	if w.joined != nil {
		can = w.joined.ready
	}
	can.Add("worker", serve.Serving(ctx))
	can.Add("its own machine", func() error { return started.Load().Unfit() })
	can.Add("scheduler "+w.Scheduler, taken(ctx, scheduler, started))
	return can
}

// taken returns a probe that fails while the scheduler does not take the worker's calls.
func taken(ctx context.Context, conn dial.Conn, started *atomic.Pointer[worker.Worker]) func() error {
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
		return answers(ctx, conn)
	}
}

// answers fails if the other side of a connection does not answer: one that hangs keeps the
// connection, and a call of an idle worker, open for as long as it likes. Any answer counts, also
// that there is no such method.
func answers(ctx context.Context, conn grpc.ClientConnInterface) error {
	ctx, cancel := context.WithTimeout(ctx, serve.ProbePatience)
	defer cancel()
	_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable {
		return fmt.Errorf("no answer: %w", err)
	}
	return nil
}

// positions is how many actions the worker has at a time.
func (w *Worker) positions() int { return w.Slots + w.FetchWidth + w.ReportWidth }

// readyRoots is how many input roots may be mounted ahead. Without a sandbox there are none: a command
// could change the root of a later action.
func (s *Started) readyRoots() int {
	if s.isolation.sandbox == nil {
		return 0
	}
	if s.w.ReadyRoots < 0 {
		return s.w.positions()
	}
	return s.w.ReadyRoots
}

// copyBytes is the size of the largest input root that is copied. Without a sandbox there are none:
// a command run by root could keep its copies from being removed.
func (s *Started) copyBytes() int64 {
	if s.isolation.sandbox == nil {
		return 0
	}
	return s.checked.copyBytes
}

// openRoots opens the input roots and, unless the storage is here, their store. The caller closes
// the store first.
func (s *Started) openRoots(registry prometheus.Registerer) (*vfs.FS, *disk.Store, error) {
	w := s.w
	memory, err := w.Callers.Memory.Bytes()
	if err != nil {
		return nil, nil, err
	}
	cacheDir := w.below(w.CacheDir, "cas")
	var store *disk.Store
	if shared := w.storageHere(); shared != nil {
		store, cacheDir = shared.Store, shared.Dir()
	}
	if err := os.MkdirAll(cacheDir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("tuning.cache_dir: %w", err)
	}
	upperDir := filepath.Join(w.Data, "upper")
	if err := os.MkdirAll(upperDir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("folder of writable layers: %w", err)
	}
	w.Disk.Spread(upperDir, w.Logger)
	// Roots first: mounts of a dead worker may be below the store.
	roots, err := vfs.Open(vfs.Options{
		MountDir: w.below(w.Mount, "mount"), UpperDir: upperDir, Logger: w.Logger, Metrics: registry,
		Method: w.ExecFilesystem, UpperMemory: s.checked.upperMemory, Owner: s.isolation.users.Owner(), VerifyEvery: time.Duration(w.Disk.VerifyEvery),
		Namespaces: s.isolation.namespaces, KnownBytes: memory / 4, Roots: w.positions(), Ready: s.readyRoots(),
		DisableGathered: !w.GatheredImages, CopyBytes: s.copyBytes(), DropFolders: !w.KeptFolders, Crew: s.crew,
		Damaged: func(d digest.Digest, file string) {
			if store != nil {
				store.CopyDamaged(d, file)
			}
		},
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
	if store != nil {
		return roots, store, nil
	}
	store, err = disk.Open(cacheDir, disk.Options{
		MaxBytes: s.checked.storeBytes, FreePercent: w.FreePercent, VerifyEvery: time.Duration(w.Disk.VerifyEvery),
		Spread: w.Disk.SpreadFolders, MakeFolders: true, Logger: w.Logger, Metrics: registry,
	})
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("worker's store: %w", err), roots.Close())
	}
	return roots, store, nil
}

// openFetches returns the component that fetches into the store.
func (w *Worker) openFetches(store *disk.Store, registry prometheus.Registerer) (*fetch.Group, error) {
	memory, err := w.memoryCache()
	if err != nil {
		return nil, err
	}
	return fetch.NewGroup(store, fetch.Options{DirectoryCacheBytes: memory, Metrics: registry})
}

// storageAddress is where the storage is: mostly a scheduler has it, too.
func (w *Worker) storageAddress() string { return cmp.Or(w.Storage, w.Scheduler) }

// dial makes the connections to the scheduler and to storage.
func (w *Worker) dial() (scheduler dial.Conn, storage *dial.Storage, err error) {
	w.Client.Logger = w.Logger
	if scheduler, err = w.Client.Open(w.Scheduler); err != nil {
		return nil, nil, fmt.Errorf("--scheduler: %w", err)
	}
	storage, err = w.Client.OpenStorage(w.storageAddress(), w.ActionCache, casclient.Options{Logger: w.Logger})
	if err != nil {
		return nil, nil, errors.Join(err, scheduler.Close())
	}
	return scheduler, storage, nil
}

// browser returns where pages of Buildbarn are; nil: there are none.
func (w *Worker) browser() (*historical.Browser, error) {
	if w.BrowserURL == "" {
		return nil, nil
	}
	b, err := historical.New(w.BrowserURL)
	if err != nil {
		return nil, settings.Wrong("tuning.browser_url: %w", err)
	}
	return b, nil
}

// makeWorkDir makes the folder for temporary files, empty.
func (w *Worker) makeWorkDir() (string, error) {
	dir := filepath.Join(w.Data, "work")
	if err := errors.Join(folder.RemoveTree(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", fmt.Errorf("work folder: %w", err)
	}
	w.Disk.Spread(dir, w.Logger)
	return dir, nil
}

func (w *Worker) below(chosen, name string) string {
	if chosen != "" {
		return chosen
	}
	return filepath.Join(w.Data, name)
}

// identity distinguishes this worker from all others.
func (w *Worker) identity() (map[string]string, error) {
	if len(w.ID) > 0 {
		return w.ID, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("host name: %w (give --id)", err)
	}
	if !utf8.ValidString(w.Data) {
		return nil, settings.Wrong("--data: the worker is named by its data folder %q, which is not UTF-8 (give --id, or another folder)", w.Data)
	}
	return map[string]string{names.HostKey: host, names.DataKey: w.Data}, nil
}
