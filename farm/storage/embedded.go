package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/disk"
	casserver "github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/intake"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/vfs/folder"
)

// embed opens a folder, to be served on the scheduler's own port.
func (s *Settings) embed(dir string, o Options) (*Opened, error) {
	size, err := settings.ParseSize(s.CacheSize)
	if err != nil {
		return nil, settings.Wrong("--cache-size: %w", err)
	}
	store, err := disk.Open(filepath.Join(dir, "cas"), disk.Options{
		MaxBytes: size, FreePercent: s.FreePercent, VerifyEvery: time.Duration(o.Disk.VerifyEvery),
		Isolate: s.Isolate, Spread: o.Disk.SpreadFolders, MakeFolders: true, Logger: o.Load.Logger, Metrics: o.Load.Metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	actions, err := disk.OpenActions(filepath.Join(dir, "actions"), disk.ActionsOptions{
		Spread: o.Disk.SpreadFolders, MakeFolders: true, Logger: o.Load.Logger,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open action cache: %w", err), store.Close())
	}
	blobs, err := o.Disk.Scrub.Open(store, actions, o.Load)
	if err != nil {
		return nil, errors.Join(err, actions.Close(), store.Close())
	}
	options := casserver.Options{
		Logger: o.Load.Logger, AllowActionUpdates: o.Guarded || s.CacheWrites == Clients,
		WaitForMemory: intake.Reserve, Memory: o.Memory,
	}
	var grants *casserver.Grants // nil: none are needed
	if !options.AllowActionUpdates {
		if grants, err = casserver.OpenGrants(filepath.Join(dir, grantsFile)); err != nil {
			return nil, errors.Join(err, actions.Close(), store.Close())
		}
		options.Grants = grants
	}
	served := casserver.New(store, actions, options)
	opened := &Opened{
		View:         func(instance string, _ digest.Function) View { return embedded{served, instance} },
		Capabilities: served.CacheCapabilities,
		Ready: func() error {
			return errors.Join(folder.Writable(store.TempDir()), folder.Writable(filepath.Join(dir, "actions", "tmp")))
		},
		blobs: blobs, register: served.Register,
		close: func() error { return errors.Join(actions.Close(), store.Close()) },
	}
	if served.Isolated() {
		opened.MissingInputs = served.MissingInputs
	}
	opened.grants(grants)
	if grants != nil {
		opened.PutGranted = served.PutGranted
	}
	return opened, nil
}

// embedded is the scheduler's view of storage in its own process: no call goes over
// the network.
type embedded struct {
	served   *casserver.Server
	instance string
}

// Read implements View.
func (e embedded) Read(ctx context.Context, d digest.Digest) ([]byte, error) {
	return e.served.ReadBlob(ctx, e.instance, d)
}

// GetActionResult implements View.
func (e embedded) GetActionResult(ctx context.Context, d digest.Digest) (*repb.ActionResult, error) {
	return e.served.Lookup(ctx, e.instance, d)
}

// FindMissing implements View.
func (e embedded) FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	return e.served.FindUnsound(ctx, e.instance, ds)
}

// PutActionResult implements View.
func (e embedded) PutActionResult(ctx context.Context, d digest.Digest, result *repb.ActionResult) error {
	return e.served.PutActionResult(ctx, e.instance, d, result)
}
