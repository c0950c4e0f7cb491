package farm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	casserver "github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/farm/scrub"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/scheduler"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

// A storage is where the scheduler reads actions and results.
type storage struct {
	register     func(grpc.ServiceRegistrar) // adds it to the scheduler's port; nil: it is elsewhere
	of           func(instance string, fn digest.Function) scheduler.Storage
	capabilities func() *repb.CacheCapabilities // nil: not known yet
	// learn waits for the capabilities of external storage; nil: the storage is embedded.
	learn func(ctx context.Context) error
	ready func() error // returns why it cannot be used now
	// grant returns a worker's grant to write the result of an action; nil: none.
	grant func(instance string, action digest.Digest) string
	// granted reports whether the caller of ctx presents that grant; nil: no grant is needed.
	granted func(ctx context.Context, instance string, action digest.Digest) bool
	// isolated: the blobs of instance names are kept apart. missingInputs returns the blobs that an
	// action's instance name lacks.
	isolated      bool
	missingInputs func(ctx context.Context, instance string, fn digest.Function, action *repb.Action) ([]digest.Digest, error)
	blobs         scrub.Store // here; none if it is elsewhere
	close         func() error
}

// ownStore returns the statistics of embedded storage; nil for external storage.
func (s *storage) ownStore() func() *admin.Store {
	if s.blobs.Store == nil {
		return nil
	}
	return func() *admin.Store {
		stats := s.blobs.Store.Stats()
		return &admin.Store{Bytes: stats.Bytes, MaxBytes: stats.MaxBytes, Blobs: stats.Blobs, Health: s.blobs.Health()}
	}
}

// grants has workers show grants of the results that they may write; nil: they need none.
func (s *storage) grants(g *casserver.Grants) {
	if g != nil {
		s.grant, s.granted = g.Of, g.Given
	}
}

// openStorage opens storage, or connects to it. guarded means that authentication is on.
func (s *Scheduler) openStorage(ctx context.Context, l scrub.Load, guarded bool) (*storage, error) {
	spec := s.Storage
	if spec == "" {
		spec = "dir:" + filepath.Join(s.Data, "storage")
	}
	if dir, ok := strings.CutPrefix(spec, "dir:"); ok {
		if s.ActionCache != "" {
			return nil, errors.New("tuning.action_cache: it is embedded with the storage; give the address of storage, too")
		}
		return s.embedStorage(dir, l, guarded)
	}
	if s.CacheWrites == CacheWritesClients {
		return nil, errors.New("--cache-writes: the action cache is external and has its own rules")
	}
	if s.IsolateContent {
		return nil, errors.New("--isolate-content works with embedded storage only: --storage names another server, " +
			"which decides itself what each instance name sees")
	}
	return s.remoteStorage(ctx, guarded)
}

// embedStorage opens a folder, to be served on the scheduler's own port.
func (s *Scheduler) embedStorage(dir string, l scrub.Load, guarded bool) (*storage, error) {
	if guarded && s.CacheWrites == CacheWritesClients {
		return nil, errors.New("--cache-writes: where callers are known by name, the right write_results below access " +
			"in the file of --config says who may write the action cache")
	}
	size, err := settings.ParseSize(s.CacheSize)
	if err != nil {
		return nil, fmt.Errorf("--cache-size: %w", err)
	}
	store, err := disk.Open(filepath.Join(dir, "cas"), disk.Options{
		MaxBytes: size, FreePercent: s.FreePercent, VerifyEvery: time.Duration(s.VerifyEvery),
		Isolate: s.IsolateContent, Logger: s.Logger, Metrics: l.Metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	actions, err := disk.OpenActions(filepath.Join(dir, "actions"), disk.ActionsOptions{Logger: s.Logger})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open action cache: %w", err), store.Close())
	}
	blobs, err := s.Scrub.Open(store, actions, l)
	if err != nil {
		return nil, errors.Join(err, actions.Close(), store.Close())
	}
	options := casserver.Options{
		Logger: s.Logger, AllowActionUpdates: guarded || s.CacheWrites == CacheWritesClients,
		Room: intake.Reserve,
	}
	var grants *casserver.Grants // nil: none are needed
	if !options.AllowActionUpdates {
		if grants, err = casserver.OpenGrants(filepath.Join(dir, grantsFile)); err != nil {
			return nil, errors.Join(err, actions.Close(), store.Close())
		}
		options.Grants = grants
	}
	served := casserver.New(store, actions, options)
	opened := &storage{
		register: served.Register,
		of: func(instance string, _ digest.Function) scheduler.Storage {
			return embedded{served, instance}
		},
		isolated: served.Isolated(), missingInputs: served.MissingInputs,
		capabilities: served.CacheCapabilities,
		blobs:        blobs,
		ready: func() error {
			return errors.Join(folder.Writable(store.TempDir()), folder.Writable(filepath.Join(dir, "actions", "tmp")))
		},
		close: func() error { return errors.Join(actions.Close(), store.Close()) },
	}
	opened.grants(grants)
	return opened, nil
}

// embedded is the scheduler's view of storage in its own process: no call goes over
// the network.
type embedded struct {
	served   *casserver.Server
	instance string
}

// Read implements scheduler.Storage.
func (e embedded) Read(ctx context.Context, d digest.Digest) ([]byte, error) {
	return e.served.ReadBlob(ctx, e.instance, d)
}

// GetActionResult implements scheduler.Storage.
func (e embedded) GetActionResult(ctx context.Context, d digest.Digest) (*repb.ActionResult, error) {
	return e.served.Lookup(ctx, e.instance, d)
}
