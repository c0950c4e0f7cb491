package farm

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/completed"
	"github.com/forerunner-build/forerunner/farm/datafolder"
	"github.com/forerunner-build/forerunner/farm/state"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/scheduler"
	"github.com/forerunner-build/forerunner/scheduler/core/event"
	"github.com/forerunner-build/forerunner/scheduler/finished"
)

// historyFolder is where the records of completed operations are, in the durable folder.
const historyFolder = "history"

// openCompleted has the scheduler keep records of completed operations.
func (s *Scheduler) openCompleted(ctx context.Context, of schedulerOf, o *scheduler.ServerOptions) (r completed.Records, err error) {
	options, err := s.completedOptions(of.state)
	if err != nil {
		return r, err
	}
	if r, err = s.Kept.Open(ctx, options); err != nil || r.Store == nil {
		return r, err
	}
	o.Finished = finished.New(finished.Options{
		Store: r.Store, Blobs: func(instance string, fn digest.Function) finished.Blobs { return of.storage.View(instance, fn) },
		Memory: options.Memory,
	})
	for _, c := range o.Finished.Collectors() {
		if err := of.registry.Register(c); err != nil {
			return r, errors.Join(err, r.Close())
		}
	}
	o.Held = unrecorded(o.Held, r.Store)
	return r, nil
}

// clockSlack is how far the clock may have been set back since an operation started.
const clockSlack = time.Hour

// unrecorded returns the operations that have not ended: the list of the last scheduler may be a
// second older than its records.
func unrecorded(held []event.Held, in *history.Store) []event.Held {
	if len(held) == 0 {
		return nil
	}
	list, since := make([]string, len(held)), held[0].Started
	for i, h := range held {
		list[i] = h.Name
		if h.Started.Before(since) {
			since = h.Started
		}
	}
	recorded := in.Recorded(list, since.Add(-clockSlack))
	return slices.DeleteFunc(held, func(h event.Held) bool { return recorded[h.Name] })
}

// completedOptions say where the records are. Schedulers with a lease share them: without one, two
// may serve at once, which would overwrite each other's.
func (s *Scheduler) completedOptions(state *state.Opened) (o completed.Options, err error) {
	o = completed.Options{Folder: filepath.Join(s.Data, durableFolder, historyFolder), Logger: s.Logger}
	if o.Memory, err = s.Callers.Memory.Bytes(); err != nil || state.Shared == nil || s.Lease == "" {
		return o, err
	}
	name, err := s.placeName()
	o.Shared = &completed.Shared{Store: state.Shared, Name: name, May: func() bool { return s.held == nil || s.held.Holds() }}
	return o, err
}

// openToFollow opens the records of one that waits for its turn. It has the data folder for itself
// until they are closed.
func (s *Scheduler) openToFollow(ctx context.Context) (o completed.Options, closeIt func() error, err error) {
	data, err := datafolder.Open(ctx, s.Data)
	if err != nil {
		return o, nil, err
	}
	state, err := s.State.Open(s.Data, &s.Client, s.Logger)
	if err != nil {
		return o, nil, errors.Join(err, data.Close())
	}
	closeIt = func() error { return errors.Join(state.Close(), data.Close()) }
	if o, err = s.completedOptions(state); err != nil {
		return o, nil, errors.Join(err, closeIt())
	}
	return o, closeIt, nil
}
