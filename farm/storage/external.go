package farm

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
	"github.com/forerunner-build/forerunner/scheduler"
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

// A remoteStorage is external storage. Its capabilities are requested while the scheduler's port is
// open: a storage that forwards to this scheduler, such as bb_storage, first requests the
// scheduler's capabilities.
type remoteStorage struct {
	*dial.Storage
	s     *Scheduler
	knows atomic.Pointer[repb.CacheCapabilities]
}

// remoteStorage connects to external storage. ctx is as long as it is used. Without authentication,
// grants are for runs that workers share here; that storage does not know them.
func (s *Scheduler) remoteStorage(ctx context.Context, guarded bool) (*storage, error) {
	var grants *casserver.Grants
	if !guarded {
		var err error
		if grants, err = casserver.OpenGrants(filepath.Join(s.Data, grantsFile)); err != nil {
			return nil, err
		}
	}
	s.Client.Logger = s.Logger
	remote, err := s.Client.OpenStorage(s.Storage, s.ActionCache, casclient.Options{Logger: s.Logger, MaxConcurrent: storageCalls})
	if err != nil {
		return nil, err
	}
	r := &remoteStorage{Storage: remote, s: s}
	opened := &storage{
		of: func(instance string, fn digest.Function) scheduler.Storage {
			return elsewhere{remote.WithInstance(instance, fn)}
		},
		capabilities: r.knows.Load,
		learn:        r.learn,
		ready: func() error {
			if r.knows.Load() == nil {
				return fmt.Errorf("%s has not returned its capabilities yet", s.Storage)
			}
			limited, cancel := context.WithTimeout(ctx, serve.ProbePatience)
			defer cancel()
			_, err := r.ask(limited)
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

// GetActionResult implements scheduler.Storage.
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

func (r *remoteStorage) ask(ctx context.Context) (*repb.ServerCapabilities, error) {
	request := &repb.GetCapabilitiesRequest{InstanceName: r.Prefix}
	return repb.NewCapabilitiesClient(r.Blobs).GetCapabilities(ctx, request, grpc.WaitForReady(true))
}

// learn asks until there is an answer, or a permanent error. With a lease, which another scheduler
// that reaches the storage could have, it waits for only half of its time.
func (r *remoteStorage) learn(ctx context.Context) error {
	waits := time.AfterFunc(storagePatience, func() {
		r.s.Logger.Warn("storage does not answer; the scheduler will serve when it does", zap.String("storage", r.s.Storage))
	})
	defer waits.Stop()
	limited, cancel := ctx, context.CancelFunc(func() {})
	if r.s.Lease != "" {
		limited, cancel = context.WithTimeout(ctx, r.s.leaseTime()/2)
	}
	defer cancel()
	for {
		answer, err := r.askOnce(limited)
		switch {
		case err == nil:
			can := answer.GetCacheCapabilities()
			if can == nil {
				can = &repb.CacheCapabilities{}
			}
			r.knows.Store(can)
			return nil
		case ctx.Err() != nil:
			return nil // it is stopped
		case isFinal(err):
			return fmt.Errorf("get capabilities of storage %s: %w", r.s.Storage, err)
		}
		select {
		case <-limited.Done():
			return durable.Unanswered{Err: fmt.Errorf("get capabilities of storage %s: %w", r.s.Storage, errors.Join(limited.Err(), err))}
		case <-time.After(storagePause):
		}
	}
}

// askOnce limits the time of one request: one that hangs is repeated.
func (r *remoteStorage) askOnce(ctx context.Context) (*repb.ServerCapabilities, error) {
	limited, cancel := context.WithTimeout(ctx, storagePatience)
	defer cancel()
	return r.ask(limited)
}

// isFinal reports whether a retry would get the same error.
func isFinal(err error) bool {
	switch status.Code(err) {
	case codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument:
		return true
	}
	return false
}
