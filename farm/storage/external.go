package storage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	casclient "github.com/forerunner-build/forerunner/cas/client"
	"github.com/forerunner-build/forerunner/cas/digest"
	casserver "github.com/forerunner-build/forerunner/cas/server"
	"github.com/forerunner-build/forerunner/farm/dial"
	"github.com/forerunner-build/forerunner/farm/durable"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/pause"
)

// storageCalls bounds the calls to other storage at a time, which are short and small:
// with a round trip of 10 ms, two for an action, it is 12,800 actions a second.
const storageCalls = 256

const (
	// storagePatience is how long external storage may be silent before a warning that the
	// scheduler does not serve.
	storagePatience = 5 * time.Second
	// storagePause is how long it is left alone after an answer that is of no use.
	storagePause = 500 * time.Millisecond
)

// An external storage's capabilities are requested while the scheduler's port is open: a storage
// that forwards to this scheduler, such as bb_storage, first requests the scheduler's capabilities.
type external struct {
	*dial.Storage
	location string
	logger   *zap.Logger
	patience time.Duration // of learn; 0: it has no end
	knows    atomic.Pointer[repb.CacheCapabilities]
}

// connect connects to external storage. Without authentication, grants are for runs that workers
// share here; that storage does not know them.
func (s *Settings) connect(ctx context.Context, o Options) (*Opened, error) {
	var grants *casserver.Grants
	if !o.Guarded {
		var err error
		if grants, err = casserver.OpenGrants(filepath.Join(o.Data, grantsFile)); err != nil {
			return nil, err
		}
	}
	logger := o.Load.Logger
	o.Client.Logger = logger
	remote, err := o.Client.OpenStorage(s.Location, s.ActionCache, casclient.Options{Logger: logger, MaxConcurrent: storageCalls})
	if err != nil {
		return nil, err
	}
	e := &external{Storage: remote, location: s.Location, logger: logger, patience: o.Patience}
	opened := &Opened{
		View: func(instance string, fn digest.Function) View {
			return elsewhere{remote.WithInstance(instance, fn)}
		},
		Capabilities: e.knows.Load,
		Learn:        e.learn,
		Ready: func() error {
			if e.knows.Load() == nil {
				return fmt.Errorf("%s has not returned its capabilities yet", s.Location)
			}
			limited, cancel := context.WithTimeout(ctx, serve.ProbePatience)
			defer cancel()
			_, err := e.ask(limited)
			return err
		},
		close: remote.Close,
	}
	opened.grants(grants)
	return opened, nil
}

// elsewhere is the scheduler's view of external storage. An inconsistent result counts as none: no
// client gets bytes that do not match their digest.
type elsewhere struct{ *casclient.Client }

// GetActionResult implements View.
func (e elsewhere) GetActionResult(ctx context.Context, d digest.Digest) (*repb.ActionResult, error) {
	result, err := e.Client.GetActionResult(ctx, d)
	if err != nil {
		return nil, err
	}
	if err := casserver.CheckResult(d.Function(), result); err != nil {
		return nil, fmt.Errorf("the storage's result of action %s is invalid: %w", d, err)
	}
	return result, nil
}

// FindMissing implements View.
func (e elsewhere) FindMissing(ctx context.Context, ds []digest.Digest) ([]digest.Digest, error) {
	return e.Client.FindMissing(casclient.Vouched(ctx), ds)
}

// PutActionResult implements View.
func (e elsewhere) PutActionResult(ctx context.Context, d digest.Digest, result *repb.ActionResult) error {
	if err := casserver.CheckResult(d.Function(), result); err != nil {
		return status.Errorf(codes.InvalidArgument, "action result %s: %v", d, err)
	}
	return e.Client.UpdateActionResult(ctx, d, result)
}

func (e *external) ask(ctx context.Context) (*repb.ServerCapabilities, error) {
	request := &repb.GetCapabilitiesRequest{InstanceName: e.Prefix}
	return repb.NewCapabilitiesClient(e.Blobs).GetCapabilities(ctx, request, grpc.WaitForReady(true))
}

// learn asks until there is an answer, or a permanent error, no longer than its patience if
// it has one.
func (e *external) learn(ctx context.Context) error {
	waits := time.AfterFunc(storagePatience, func() {
		e.logger.Warn("storage does not answer; the scheduler will serve when it does", zap.String("storage", e.location))
	})
	defer waits.Stop()
	limited, cancel := ctx, context.CancelFunc(func() {})
	if e.patience > 0 {
		limited, cancel = context.WithTimeout(ctx, e.patience)
	}
	defer cancel()
	for {
		answer, err := e.askOnce(limited)
		switch {
		case err == nil:
			can := answer.GetCacheCapabilities()
			if can == nil {
				can = &repb.CacheCapabilities{}
			}
			e.knows.Store(can)
			return nil
		case ctx.Err() != nil:
			return nil // it is stopped
		case isFinal(err):
			return fmt.Errorf("get capabilities of storage %s: %w", e.location, err)
		}
		if over := pause.For(limited, storagePause); over != nil {
			return durable.Unanswered{Err: fmt.Errorf("get capabilities of storage %s: %w", e.location, errors.Join(over, err))}
		}
	}
}

// askOnce limits the time of one request: one that hangs is repeated.
func (e *external) askOnce(ctx context.Context) (*repb.ServerCapabilities, error) {
	limited, cancel := context.WithTimeout(ctx, storagePatience)
	defer cancel()
	return e.ask(limited)
}

// isFinal reports whether a retry would get the same error.
func isFinal(err error) bool {
	switch status.Code(err) {
	case codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		return true
	}
	return false
}
