package scrub

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/forerunner-build/forerunner/cas/disk"
	casscrub "github.com/forerunner-build/forerunner/cas/scrub"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/worker"
)

// A Schedule says how often a store is read again, to find damage.
type Schedule struct {
	// Every is the period in which all of it is read; 0: never.
	Every time.Duration `tuning:"scrub_every" group:"Disk" unit:"TIME" min:"0" default:"168h" doc:"Period in which the program reads all stored files again to find damage; 0 is never"`
	// Rate limits the bytes read per second, with a unit; empty: 32M.
	Rate string `tuning:"scrub_rate" unit:"SIZE" default:"32M" doc:"Maximum bytes that a scrub reads per second; a scrub is slower while other programs need the disk"`
}

// A Store is a store and its Scrubber, which is nil if the store is not read again.
type Store struct {
	*disk.Store
	Scrubber *disk.Scrubber
}

// A Load tells a Scrubber whether others need the disk.
type Load struct {
	Busy    func() bool
	Logger  *zap.Logger
	Metrics prometheus.Registerer
}

// Open makes the Scrubber of a store and, unless that is nil, of results.
func (s *Schedule) Open(store *disk.Store, actions *disk.Actions, l Load) (Store, error) {
	rate, err := settings.ParseSize(s.Rate)
	if err != nil {
		return Store{}, fmt.Errorf("tuning.scrub_rate: %w", err)
	}
	if s.Every == 0 {
		return Store{Store: store}, nil
	}
	scrubber, err := disk.NewScrubber(store, actions, casscrub.Options{
		Every: s.Every, Rate: rate, Busy: l.Busy, Logger: l.Logger, Metrics: l.Metrics,
	})
	return Store{store, scrubber}, err
}

// Run scrubs the store until stop is called.
func (s Store) Run() (stop func()) {
	if s.Scrubber == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Scrubber.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// A WorkerLoad tells whether a worker has actions, or other workers read its store.
type WorkerLoad struct {
	Readers serve.Activity
	Worker  *atomic.Pointer[worker.Worker]
}

// Busy reports whether either is the case.
func (l *WorkerLoad) Busy() bool {
	w := l.Worker.Load()
	return w != nil && w.Busy() || l.Readers.MovesBlobs()
}

// Health returns the state of the store for people.
func (s Store) Health() *live.StoreHealth {
	store := s.Stats()
	h := &live.StoreHealth{DamagedBlobs: store.DamagedBlobs, AsideBlobs: store.AsideBlobs, AsideBytes: store.AsideBytes}
	if s.Scrubber == nil {
		return h
	}
	st := s.Scrubber.Status()
	h.Scrub = &live.Scrub{
		Every: durationpb.New(st.Every), Rate: st.Rate, Began: timeOrNil(st.Began), Ended: timeOrNil(st.Ended),
		Due: timeOrNil(st.Due), Done: st.Done, Files: st.Files, Bytes: st.Bytes, Damaged: st.Damaged,
		LastWhole: timeOrNil(st.LastWhole),
	}
	return h
}

func timeOrNil(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t.Truncate(time.Second))
}
