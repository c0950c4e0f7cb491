package farm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/forerunner-build/forerunner/farm/datafolder"
	"github.com/forerunner-build/forerunner/farm/durable"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler"
	"github.com/forerunner-build/forerunner/settings"
)

// checkLease returns an error if schedulers could not take turns.
func (s *Scheduler) checkLease() error {
	switch {
	case !records.IsRedisURL(string(s.State)):
		return settings.Wrong("--lease needs a Redis that all schedulers share, as --state")
	case !state.IsService(s.Storage.Location):
		return settings.Wrong("--lease needs storage that all schedulers share: --storage=grpc://HOST:PORT")
	}
	return nil
}

func (s *Scheduler) leaseTime() time.Duration {
	if s.LeaseTime > 0 {
		return s.LeaseTime
	}
	return records.DefaultLeaseDuration
}

// storagePatience is half of the time of a lease, which another scheduler that reaches the storage
// could have; 0: there is no lease.
func (s *Scheduler) storagePatience() time.Duration {
	if s.Lease == "" {
		return 0
	}
	return s.leaseTime() / 2
}

// serveAlone serves as serve does, with the data folder for itself.
func (s *Scheduler) serveAlone(ctx, abort context.Context, term uint64, ready func(address string) error) (err error) {
	config, err := s.check()
	if err != nil {
		return err
	}
	data, err := datafolder.Open(ctx, s.Data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	s.Disk.Spread(s.Data, s.Logger)
	return datafolder.WithRoom(s.serve(ctx, abort, config, term, ready))
}

// Run serves until ctx ends; with a Lease it serves only while it holds that. Then a server that
// does not answer at the beginning of a term ends that term, not Run. Once abort ends, Run waits
// for nothing. ready is called with the address of the gRPC port each time when Run begins to
// answer calls.
func (s *Scheduler) Run(ctx, abort context.Context, ready func(address string) error) (err error) {
	if s.Lease == "" {
		err := s.serveAlone(ctx, abort, 0, ready)
		if ctx.Err() != nil && status.Code(err) == codes.Canceled {
			return nil // it was stopped while it waited for the storage
		}
		return err
	}
	config, err := s.check()
	if err != nil {
		return err
	}
	if config.logins != nil && !config.logins.SharesKey() {
		s.Logger.Warn("users must log in again when another scheduler serves; give all schedulers the same login.key_file in --config")
	}
	store, err := s.State.OpenRedis(&s.Client)
	if err != nil {
		return fmt.Errorf("--state: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("host name: %w", err)
	}
	lease := records.NewLease(store, s.Lease, records.LeaseOptions{
		Holder: fmt.Sprintf("%s %s", host, s.Listen), Duration: s.leaseTime(), Logger: s.Logger,
	})
	s.held = lease
	for ctx.Err() == nil {
		err := s.takeTurn(ctx, abort, lease, ready)
		switch away := (durable.Unanswered{}); {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, records.ErrLeaseLost) || errors.As(err, &away):
			s.Logger.Warn("the scheduler stopped serving; waiting for the lease again", zap.Error(err))
		default:
			return err
		}
	}
	return nil
}

// placeName returns the name that schedulers have in common if they replace each other.
func (s *Scheduler) placeName() (string, error) {
	if s.Lease != "" {
		return "lease " + s.Lease, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("host name: %w", err)
	}
	return fmt.Sprintf("address %s %s", host, s.Listen), nil
}

// openIndex returns the store of the index of running operations, which the next scheduler reads.
func (s *Scheduler) openIndex(shared records.Durable) (*scheduler.Index, error) {
	name, err := s.placeName()
	if err != nil {
		return nil, err
	}
	return scheduler.NewIndex(shared, name, s.Logger), nil
}

// takeTurn waits for the lease and serves while it holds. Until then gRPC is not served, so that
// clients and workers try the next address, but health and metrics are.
func (s *Scheduler) takeTurn(ctx, abort context.Context, lease *records.Lease, serves func(address string) error) error {
	config, err := s.check()
	if err != nil {
		return err
	}
	ready := &serve.Readiness{}
	ready.Add("lease "+s.Lease, lease.Lacks)
	stopHTTP, err := s.Ports.ServeHTTP(ctx, s.HTTP, s.Callers, config.protect, serve.Shown{Registry: serve.NewRegistry(), Ready: ready})
	if err != nil {
		return err
	}
	stopFollowing := s.Kept.Follow(ctx, s.openToFollow, s.Logger)
	waiting := true
	err = lease.Hold(ctx, func(ctx context.Context, term uint64) error {
		waiting = false
		stopFollowing()
		if err := stopHTTP(); err != nil {
			return err
		}
		return s.serveAlone(ctx, abort, term, serves)
	})
	if waiting {
		stopFollowing()
		err = errors.Join(err, stopHTTP())
	}
	return err
}
