package completed

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"
)

// followPause is how long after an error it is tried again to take over records.
const followPause = 2 * time.Second

// An Opener opens the shared store of records, which the returned function closes.
type Opener func(ctx context.Context) (o Options, closeIt func() error, err error)

// Follow copies the records of the serving scheduler until it is stopped, so that they are here
// when this one replaces it. It returns a function that stops it and waits for its end.
func (s *Settings) Follow(ctx context.Context, open Opener, log *zap.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		again(ctx, log, func(ctx context.Context) error { return s.follow(ctx, open) })
	})
	return func() {
		cancel()
		following.Wait()
	}
}

// again calls follow until ctx ends, or there is nothing to take over: then it returns nil.
func again(ctx context.Context, log *zap.Logger, follow func(context.Context) error) {
	pause := time.NewTicker(followPause)
	defer pause.Stop()
	for last := ""; ; {
		err := follow(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		if last != err.Error() {
			last = err.Error()
			log.Warn("cannot copy records from the active scheduler; trying again", zap.Error(err))
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Settings) follow(ctx context.Context, open Opener) (err error) {
	if s.Keep <= 0 {
		return nil
	}
	o, closeIt, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeIt()) }()
	from, err := o.newRelay()
	if err != nil || from == nil {
		return err
	}
	defer from.Close()
	store, onDisk, err := s.open(o, nil)
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
