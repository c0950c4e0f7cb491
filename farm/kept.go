package farm

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/scheduler"
	"github.com/forerunner-build/forerunner/scheduler/finished"
	"github.com/forerunner-build/forerunner/settings"
)

// historyFolder is where the records of operations that have ended are, in the durable folder.
const historyFolder = "history"

// A Kept is how long records of completed operations are kept.
type Kept struct {
	// Records is 0 for none.
	Records time.Duration `flag:"keep-records" group:"Storage" unit:"TIME" default:"336h" doc:"Time for which records of completed operations are kept, for pages and forerunner history; 0 keeps none"`
	// RecordsSize bounds them before that; empty: 2G.
	RecordsSize string `tuning:"records_size" unit:"SIZE" default:"2G" doc:"Size limit of these records; the oldest are removed first"`
}

// openRecords makes the scheduler keep records. If the folder cannot be used, they are in memory,
// with a limit; but files of another version are an error. Nil: no records.
func (s *Scheduler) openRecords(storage *storage, registry prometheus.Registerer, o *scheduler.ServerOptions) (store *history.Store, err error) {
	if s.Kept.Records <= 0 {
		return nil, nil
	}
	size, err := settings.ParseSize(s.Kept.RecordsSize)
	if err != nil {
		return nil, fmt.Errorf("records_size: %w", err)
	}
	memory, err := s.Callers.Memory.Bytes()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(s.Data, durableFolder, historyFolder)
	options := history.Options{Keep: s.Kept.Records, MaxBytes: size, Memory: memory, Logger: s.Logger}
	store, err = history.Open(folder, options)
	if err != nil && !errors.Is(err, history.ErrFormat) {
		s.Logger.Warn("records of completed operations are kept in memory only", zap.String("folder", folder), zap.Error(err))
		store, err = history.Open("", options)
	}
	if err != nil {
		return nil, err
	}
	o.Finished = finished.New(finished.Options{
		Store: store, Blobs: func(instance string, fn digest.Function) finished.Blobs { return storage.of(instance, fn) },
		Memory: memory,
	})
	for _, c := range o.Finished.Collectors() {
		if err := registry.Register(c); err != nil {
			return nil, errors.Join(err, store.Close())
		}
	}
	return store, nil
}

// closeRecords closes a store; nil: there is none.
func closeRecords(store *history.Store) error {
	if store == nil {
		return nil
	}
	return store.Close()
}
