package farm

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/scheduler/journal"
)

// maxRecord bounds the file of --record in bytes. A part of a recording is of no
// use, so it ends rather than be rotated.
const maxRecord = 1 << 30

// record opens the file of --record and writes the recorder's events until finish is called.
// Without that flag the recorder is nil.
func (s *Scheduler) record() (recorder *journal.Journal, finish func() error, err error) {
	if s.Record == "" {
		return nil, func() error { return nil }, nil
	}
	if info, err := os.Stat(s.Record); err == nil && info.Mode().IsRegular() {
		if err := os.Rename(s.Record, s.Record+".old"); err != nil {
			return nil, nil, fmt.Errorf("--record: keep the last one: %w", err)
		}
	}
	f, err := os.OpenFile(s.Record, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("--record: %w", err)
	}
	recorder = journal.New(f, maxRecord)
	ctx, stop := context.WithCancel(context.Background())
	written := make(chan error, 1)
	go func() {
		err := recorder.Run(ctx)
		if err != nil {
			s.Logger.Warn("the recording is incomplete", zap.String("file", s.Record), zap.Error(err))
		}
		written <- f.Close()
	}()
	return recorder, func() error {
		stop()
		return errors.Join(<-written)
	}, nil
}
