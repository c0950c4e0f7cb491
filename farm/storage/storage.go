package storage

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/cas/digest"
	casserver "github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/scrub"
	"github.com/forerunner-build/forerunner/proto/admin"
	"github.com/forerunner-build/forerunner/settings"
)

// Settings are the location and the options of the storage. The tags are the users' documentation
// of each setting.
type Settings struct {
	// Location is empty for a folder below the scheduler's.
	Location string `flag:"storage" group:"Storage" unit:"LOCATION" otherwise:"dir:DATA/storage" doc:"REv2 storage: dir:PATH (embedded), or grpc://HOST:PORT or grpcs://HOST:PORT with options (docs/STORAGE.md)"`
	// ActionCache is the address of the results, if it differs from an external Location.
	ActionCache string `tuning:"action_cache" unit:"ADDRESS" otherwise:"that of --storage" doc:"Address of the action cache, if it differs from that of the storage"`
	CacheSize   string `flag:"cache-size" unit:"SIZE" otherwise:"80% of the free space" doc:"Size of embedded storage"`
	// FreePercent of the free space is used without CacheSize; 0 is 80.
	FreePercent int
	// CacheWrites applies without authentication; empty: Workers.
	CacheWrites CacheWrites `flag:"cache-writes" oneof:"workers clients" default:"workers" doc:"Who may write the action cache without authentication: workers, each the results of its own actions; clients, everybody"`
	// Isolate makes embedded storage keep the blobs of instance names apart.
	Isolate bool `flag:"isolate-content" doc:"Shows each instance name only the blobs of embedded storage that it uploaded or that its actions made"`
}

// Options are the options of Open.
type Options struct {
	Data     string        // folder of the scheduler
	Guarded  bool          // authentication is on
	Disk     scrub.Disk    // for embedded storage
	Load     scrub.Load    // has the logger
	Memory   int64         // memory limit of the program, in bytes; 0: none
	Client   dial.Client   // calls external storage
	Patience time.Duration // limits Learn; 0: it waits for external storage without limit
}

// A View is the storage for one instance name.
type View interface {
	Read(ctx context.Context, d digest.Digest) ([]byte, error)
	GetActionResult(ctx context.Context, action digest.Digest) (*repb.ActionResult, error)
	// FindMissing returns the blobs in ds that are missing, and verifies the others.
	FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error)
	// PutActionResult stores a result as a worker does.
	PutActionResult(ctx context.Context, action digest.Digest, result *repb.ActionResult) error
}

// An Opened is the storage from which the scheduler reads actions and results.
type Opened struct {
	View func(instance string, fn digest.Function) View
	// Capabilities returns nil while they are unknown.
	Capabilities func() *repb.CacheCapabilities
	// Learn waits for the capabilities of external storage; nil: the storage is embedded.
	Learn func(ctx context.Context) error
	Ready func() error // returns the reason why it cannot be used now
	// Grant returns a worker's grant to write the result of an action. Nil: workers need none.
	Grant func(instance string, action digest.Digest) string
	// Granted reports whether the caller of ctx presents that grant. Nil: no grant is needed.
	Granted func(ctx context.Context, instance string, action digest.Digest) bool
	// PutGranted writes the result of an action for the caller of ctx, who must present that grant.
	// Nil: the storage is elsewhere, or no grant is needed.
	PutGranted func(ctx context.Context, instance string, action digest.Digest, result *repb.ActionResult) error
	// MissingInputs returns the blobs that an action's instance name lacks. Nil: instance names
	// share blobs.
	MissingInputs func(ctx context.Context, instance string, fn digest.Function, action *repb.Action) ([]digest.Digest, error)

	blobs    scrub.Store                 // embedded; none if it is elsewhere
	register func(grpc.ServiceRegistrar) // adds it to the scheduler's port; nil: it is elsewhere
	close    func() error
}

// IsEmbedded reports whether the scheduler itself serves the storage.
func (s *Opened) IsEmbedded() bool { return s.register != nil }

// Blobs returns the store of embedded storage; nil for external storage.
func (s *Opened) Blobs() *scrub.Store {
	if s.blobs.Store == nil {
		return nil
	}
	return &s.blobs
}

// Run scrubs embedded storage, as its settings require, until ctx ends.
func (s *Opened) Run(ctx context.Context) {
	if s.blobs.Scrubber != nil {
		s.blobs.Scrubber.Run(ctx)
	}
}

// Statistics returns those of embedded storage; nil for external storage.
func (s *Opened) Statistics() func() *admin.Store {
	if s.blobs.Store == nil {
		return nil
	}
	return func() *admin.Store {
		stats := s.blobs.Store.Stats()
		return &admin.Store{Bytes: stats.Bytes, MaxBytes: stats.MaxBytes, Blobs: stats.Blobs, Health: s.blobs.Health()}
	}
}

// Close closes the storage, or the connections to it.
func (s *Opened) Close() error { return s.close() }

// grantsFile has the key of workers' grants.
const grantsFile = "grants.key"

// grants has workers show grants of the results that they may write; nil: they need none.
func (s *Opened) grants(g *casserver.Grants) {
	if g != nil {
		s.Grant, s.Granted = g.Of, g.Given
	}
}

// CheckLocation returns an error unless place is that of a storage.
func CheckLocation(location string) error {
	if strings.HasPrefix(location, dirScheme) {
		return nil
	}
	return dial.CheckStorage(location)
}

// folder returns the folder of embedded storage; empty: the storage is elsewhere.
func (s *Settings) folder(data string) string {
	if s.Location == "" {
		return filepath.Join(data, "storage")
	}
	dir, embedded := strings.CutPrefix(s.Location, dirScheme)
	if !embedded {
		return ""
	}
	return dir
}

// dirScheme begins the location of embedded storage.
const dirScheme = "dir:"

// Check returns an error unless Open can use the settings, and the files of o.Client with them.
func (s *Settings) Check(o Options) error {
	switch embedded := s.Location == "" || strings.HasPrefix(s.Location, dirScheme); {
	case s.Location == dirScheme:
		return settings.Wrong("--storage: %s has no folder: dir:PATH", dirScheme)
	case embedded && s.ActionCache != "":
		return settings.Wrong("tuning.action_cache: it is embedded with the storage; give the address of storage, too")
	case embedded && o.Guarded && s.CacheWrites == Clients:
		return settings.Wrong("--cache-writes: where callers are known by name, the right write_results below access " +
			"in the file of --config says who may write the action cache")
	case embedded:
		return nil
	case s.CacheWrites == Clients:
		return settings.Wrong("--cache-writes: the action cache is external and has its own rules")
	case s.Isolate:
		return settings.Wrong("--isolate-content works with embedded storage only: --storage names another server, " +
			"which decides itself what each instance name sees")
	}
	return o.Client.CheckStorage(s.Location, s.ActionCache)
}

// Open opens storage, or connects to it. ctx must last as long as the storage is used.
func (s *Settings) Open(ctx context.Context, o Options) (*Opened, error) {
	if err := s.Check(o); err != nil {
		return nil, err
	}
	if dir := s.folder(o.Data); dir != "" {
		return s.embed(dir, o)
	}
	return s.connect(ctx, o)
}
