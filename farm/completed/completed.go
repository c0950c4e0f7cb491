package farm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/datafolder"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/history/relay"
	"github.com/forerunner-build/forerunner/scheduler"
	"github.com/forerunner-build/forerunner/scheduler/finished"
	"github.com/forerunner-build/forerunner/settings"
)

const (
	// historyFolder is where the records of operations that have ended are, in the durable folder,
	// and relayFile says there which of other schedulers' it has.
	historyFolder, relayFile = "history", "relay"
	// catchUp bounds how long a scheduler takes over records of others before it serves.
	catchUp = 5 * time.Second
)

// A Kept is how long records of completed operations are kept.
type Kept struct {
	// Records is 0 for none.
	Records time.Duration `flag:"keep-records" group:"Storage" unit:"TIME" default:"336h" doc:"Time for which records of completed operations are kept, for pages and forerunner history; 0 keeps none"`
	// RecordsSize bounds them before that; empty: 2G.
	RecordsSize string `tuning:"records_size" unit:"SIZE" default:"2G" doc:"Size limit of these records; the oldest are removed first"`
}

// keptRecords are the records of operations that have ended, and what hands them to the schedulers
// that take this one's place.
type keptRecords struct {
	*history.Store                // nil: none are kept
	relay          *relay.Relay   // nil: nobody can take its place
	into           *history.Store // takes those of others; nil: they would be here in memory only
}

// openRecords has the scheduler keep records, of those that it takes the place of, too. Where the
// folder cannot be used, they are in memory, bounded; but what another version wrote there is an
// error.
func (s *Scheduler) openRecords(ctx context.Context, of schedulerOf, o *scheduler.ServerOptions) (k keptRecords, err error) {
	if s.Kept.Records <= 0 {
		return k, nil
	}
	memory, err := s.Callers.Memory.Bytes()
	if err != nil {
		return k, err
	}
	k.relay = s.openRelay(of.state)
	if k.Store, k.into, err = s.openHistory(k.relay); err != nil {
		return k, errors.Join(err, k.close())
	}
	if k.relay != nil && k.into != nil {
		limited, cancel := context.WithTimeout(ctx, catchUp)
		defer cancel()
		k.relay.Pull(limited, k.into) // or Run does
	}
	o.Finished = finished.New(finished.Options{
		Store: k.Store, Blobs: func(instance string, fn digest.Function) finished.Blobs { return of.storage.of(instance, fn) },
		Memory: memory,
	})
	for _, c := range o.Finished.Collectors() {
		if err := of.registry.Register(c); err != nil {
			return k, errors.Join(err, k.close())
		}
	}
	return k, nil
}

// openHistory opens the store of records, which tells a relay what is added; nil: nobody wants to
// know. The second result is the same if it is on disk, else nil: what others have published would
// count as here, and be gone after a restart.
func (s *Scheduler) openHistory(to *relay.Relay) (store, onDisk *history.Store, err error) {
	size, err := settings.ParseSize(s.Kept.RecordsSize)
	if err != nil {
		return nil, nil, fmt.Errorf("records_size: %w", err)
	}
	memory, err := s.Callers.Memory.Bytes()
	if err != nil {
		return nil, nil, err
	}
	folder := s.historyFolder()
	options := history.Options{Keep: s.Kept.Records, MaxBytes: size, Memory: memory, Logger: s.Logger}
	if to != nil {
		options.Added = to.Add
	}
	store, err = history.Open(folder, options)
	if err != nil && !errors.Is(err, history.ErrFormat) {
		s.Logger.Warn("records of completed operations are kept in memory only", zap.String("folder", folder), zap.Error(err))
		store, err = history.Open("", options)
		return store, nil, err
	}
	return store, store, err
}

func (s *Scheduler) historyFolder() string {
	return filepath.Join(s.Data, durableFolder, historyFolder)
}

// newRelay returns what hands records to the schedulers that take the place of s; nil: none can.
// Without a lease two may serve at once, which would overwrite each other's.
func (s *Scheduler) newRelay(state *state.Opened) (*relay.Relay, error) {
	if state.Shared == nil || s.Lease == "" {
		return nil, nil
	}
	name, err := s.placeName()
	if err != nil {
		return nil, err
	}
	return relay.New(relay.Options{
		Shared: state.Shared, Name: name, File: filepath.Join(s.historyFolder(), relayFile), Logger: s.Logger,
		May: func() bool { return s.held == nil || s.held.Holds() },
	})
}

// openRelay is newRelay for one that serves: a folder that cannot be used is no reason not to.
func (s *Scheduler) openRelay(state *state.Opened) *relay.Relay {
	r, err := s.newRelay(state)
	if err != nil {
		s.Logger.Warn("records are not shared with other schedulers", zap.Error(err))
		return nil
	}
	return r
}

// run hands over what is added until ctx ends.
func (k keptRecords) run(ctx context.Context) {
	if k.relay != nil {
		k.relay.Run(ctx, k.into)
	}
}

func (k keptRecords) close() (err error) {
	if k.Store != nil {
		err = k.Store.Close()
	}
	if k.relay != nil {
		k.relay.Close()
	}
	return err
}

// follow takes over the records of the scheduler that serves, until ctx ends, so that they are here
// when s takes its place.
func (s *Scheduler) follow(ctx context.Context) (err error) {
	if s.Kept.Records <= 0 {
		return nil
	}
	data, err := datafolder.Open(s.Data)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, data.Close()) }()
	state, err := s.State.Open(s.Data, &s.Client, s.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, state.Close()) }()
	from, err := s.newRelay(state)
	if err != nil || from == nil {
		return err
	}
	defer from.Close()
	store, onDisk, err := s.openHistory(nil)
	if err != nil {
		return err
	}
	if onDisk == nil {
		return errors.Join(errors.New("the folder of records cannot be used"), store.Close())
	}
	var writing sync.WaitGroup
	writing.Go(func() { store.Run(ctx) })
	from.Follow(ctx, store)
	writing.Wait()
	return store.Close()
}
