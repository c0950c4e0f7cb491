package farm

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/farm/storage"
	reusepb "github.com/forerunner-build/forerunner/proto/reuse"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/records/sharedruns"
	"github.com/forerunner-build/forerunner/scheduler/pastruns"
	"github.com/forerunner-build/forerunner/worker/machine"
	"github.com/forerunner-build/forerunner/worker/reuse"
)

// ownMachine is the ReuseMachine of a worker that does not share runs.
const ownMachine = "own"

// examine starts the examination of all files that commands see, if that decides with which workers
// runs are shared. It comes before the launchers, which prepare the view of commands. A machine
// that cannot be examined is like no other.
func (s *Started) examine() {
	w := s.w
	if w.Reuse != ReuseProfile || w.ReuseMachine != "" || s.isolation.sandbox == nil {
		return
	}
	facts, err := machine.Facts(w.Data)
	if err == nil {
		s.examined, err = machine.Examine(machine.Options{
			Shown: s.isolation.sandbox.Shown(), Hidden: s.isolation.sandbox.Covered(), Facts: facts, Logger: w.Logger,
		})
	}
	if err != nil {
		w.Logger.Warn("runs are not shared with other workers: the machine cannot be examined", zap.Error(err))
	}
}

// machine returns the identity of the machine for sharing runs; nil: runs are not shared.
func (s *Started) machine(open *closers) reuse.Machine {
	switch w := s.w; {
	case w.Reuse != ReuseProfile, w.ReuseMachine == ownMachine:
		return nil
	case w.ReuseMachine != "":
		facts, err := machine.Facts(w.Data)
		if err != nil {
			w.Logger.Warn("runs are not shared with other workers: the machine cannot be examined", zap.Error(err))
			return nil
		}
		return machine.NewNamed(w.ReuseMachine, facts)
	case s.isolation.sandbox == nil: // commands see all of the machine
		w.Logger.Info("runs are not shared with other workers: commands have no sandbox",
			zap.String("remedy", "tuning.reuse_machine, the same on machines that are alike"))
		return nil
	case s.examined == nil:
		return nil
	}
	open.add(func() error { s.examined.Close(); return nil })
	s.examined.Begin()
	return s.examined
}

// openShared opens this worker's view of shared runs; nil: none.
func (s *Started) openShared(
	abort context.Context, conn grpc.ClientConnInterface, registry prometheus.Registerer, open *closers,
) (*reuse.Shared, error) {
	counts := reuse.NewCounts()
	if err := registry.Register(counts); err != nil {
		return nil, err
	}
	like := s.machine(open)
	if like == nil {
		return nil, nil
	}
	shared := reuse.OpenShared(reuse.SharedOptions{
		Client: reusepb.NewAccountsClient(conn), Machine: like, Logger: s.w.Logger, Counts: counts,
	})
	open.add(func() error { shared.Close(abort); return nil })
	return shared, nil
}

// openSharedRuns opens the store of shared runs, in the Redis of --state, else in a file of the data
// folder. It returns the function that closes all of state.
func (s *Scheduler) openSharedRuns(of *state.Opened) (closeAll func() error) {
	if of.SharedRuns = of.Hints; of.Shared != nil {
		return of.Close
	}
	store, closeStore := state.OpenFile(filepath.Join(s.Data, sharedRunsFile), records.BoltOptions{Logger: s.Logger, MaxBytes: reuseBytes})
	of.SharedRuns = store
	return func() error { return errors.Join(closeStore(), of.Close()) }
}

// openPastRuns returns the scheduler's search for earlier runs; nil: there is none.
func (s *Scheduler) openPastRuns(of schedulerOf) (*pastruns.Finder, error) {
	if !s.Reuse {
		return nil, nil
	}
	return pastruns.New(pastruns.Options{
		SharedRuns: of.state.SharedRuns,
		Storage:    func(instance string, fn digest.Function) pastruns.Storage { return of.storage.View(instance, fn) },
		Logger:     s.Logger, Metrics: of.registry,
	})
}

// shareRuns serves shared runs.
func shareRuns(g grpc.ServiceRegistrar, of *storage.Opened, state *state.Opened) {
	sharedruns.Register(g, sharedruns.Options{
		Store: state.SharedRuns, Granted: of.Granted,
		Read: func(ctx context.Context, instance string, d digest.Digest) ([]byte, error) {
			return of.View(instance, d.Function()).Read(ctx, d)
		},
	})
}
