package farm

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/kv"
	"github.com/forerunner-build/forerunner/prefetch"
)

// recordsFile is where a program keeps its records, in its data folder.
const recordsFile = "records.db"

// openRecords opens the records in a file. They are hints: if that cannot be
// done, which is logged, they are kept until the program ends.
func openRecords(path string, log *zap.Logger) (store kv.Store, closeStore func() error) {
	return openRecordsOf(path, kv.BoltOptions{Logger: log})
}

func openRecordsOf(path string, o kv.BoltOptions) (store kv.Store, closeStore func() error) {
	file, err := kv.OpenBolt(path, o)
	if err != nil {
		o.Logger.Warn("records of former actions are kept in memory only", zap.String("file", path), zap.Error(err))
		return kv.NewMemory(0), func() error { return nil }
	}
	return file, file.Close
}

// openProfiles opens what the worker remembers of what actions read, nil if nothing.
func (w *Worker) openProfiles() (_ *prefetch.Profiles, closeStore func() error, err error) {
	if !w.Prefetch {
		return nil, func() error { return nil }, nil
	}
	var store kv.Store
	switch {
	case strings.HasPrefix(w.Profiles, "grpc://"), strings.HasPrefix(w.Profiles, "grpcs://"):
		conn, err := w.Client.Dial(w.Profiles)
		if err != nil {
			return nil, nil, err
		}
		store, closeStore = kv.NewFSAC(conn, kv.FSACOptions{
			Buckets: []string{prefetch.ExactBucket, prefetch.CoarseBucket},
		}), conn.Close
	case strings.HasPrefix(w.Profiles, "bolt:"):
		store, closeStore = openRecords(strings.TrimPrefix(w.Profiles, "bolt:"), w.Logger)
	case w.Profiles == "":
		store, closeStore = openRecords(filepath.Join(w.Data, recordsFile), w.Logger)
	default:
		return nil, nil, fmt.Errorf("%q is none of bolt:PATH, grpc://HOST:PORT and grpcs://HOST:PORT", w.Profiles)
	}
	return prefetch.NewProfiles(store, prefetch.ProfilesOptions{Logger: w.Logger}), closeStore, nil
}

// flushTimeout bounds how long the end of a worker waits for its profiles.
const flushTimeout = 2 * time.Second

// flushProfiles saves what was learned and not written yet; ctx may have ended.
func flushProfiles(ctx context.Context, p *prefetch.Profiles) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	p.Flush(ctx)
}
