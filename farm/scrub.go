package farm

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
	"github.com/forerunner-build/forerunner/cas/scrub"
	"github.com/forerunner-build/forerunner/farm/serve"
	"github.com/forerunner-build/forerunner/proto/live"
	"github.com/forerunner-build/forerunner/settings"
	"github.com/forerunner-build/forerunner/worker"
)

// A Scrub says how a store is read again, to find what has rotted.
type Scrub struct {
	// Every is how often all of it is read; 0: never.
	Every time.Duration `tuning:"scrub_every" group:"Disk" unit:"TIME" default:"168h" doc:"Time in which everything stored on this machine is read again, to find what the disk has damaged; 0 is never"`
	// Rate is the most bytes that are read in a second, with a unit; empty: 32M.
	Rate string `tuning:"scrub_rate" unit:"SIZE" default:"32M" doc:"Bytes that this reads in a second at most; it reads slower while others need the disk"`
}

// A scrubbed is a store, and what reads it again; that is nil if nothing does.
type scrubbed struct {
	store    *disk.Store
	scrubber *disk.Scrubber
}

// A scrubLoad is what tells a Scrubber of others.
type scrubLoad struct {
	busy    func() bool
	log     *zap.Logger
	metrics prometheus.Registerer
}

// open makes the Scrubber of a store and, unless that is nil, of results.
func (s *Scrub) open(store *disk.Store, actions *disk.Actions, l scrubLoad) (scrubbed, error) {
	rate, err := settings.ParseSize(s.Rate)
	if err != nil {
		return scrubbed{}, fmt.Errorf("tuning.scrub_rate: %w", err)
	}
	if s.Every == 0 {
		return scrubbed{store: store}, nil
	}
	if s.Every < 0 {
		return scrubbed{}, fmt.Errorf("tuning.scrub_every: %s", s.Every)
	}
	scrubber, err := disk.NewScrubber(store, actions, scrub.Options{
		Every: s.Every, Rate: rate, Busy: l.busy, Logger: l.log, Metrics: l.metrics,
	})
	return scrubbed{store, scrubber}, err
}

// run has the store read until stop is called.
func (s scrubbed) run() (stop func()) {
	if s.scrubber == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.scrubber.Run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

// A workerLoad tells whether a worker has actions, or other workers read its store.
type workerLoad struct {
	readers serve.Activity
	worker  *atomic.Pointer[worker.Worker]
}

func (l *workerLoad) busy() bool {
	w := l.worker.Load()
	return w != nil && w.Busy() || l.readers.MovesBlobs()
}

// health is what people are shown of the store.
func (s scrubbed) health() *live.StoreHealth {
	store := s.store.Stats()
	h := &live.StoreHealth{DamagedBlobs: store.DamagedBlobs, AsideBlobs: store.AsideBlobs, AsideBytes: store.AsideBytes}
	if s.scrubber == nil {
		return h
	}
	st := s.scrubber.Status()
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
