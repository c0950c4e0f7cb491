package completed

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/history"
	"github.com/forerunner-build/forerunner/history/relay"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/settings"
)

const (
	// relayFile says which records of other schedulers are in the folder.
	relayFile = "relay"
	// catchUp bounds how long a scheduler takes over records of others before it serves.
	catchUp = 5 * time.Second
)

// Settings are how long records of completed operations are kept.
type Settings struct {
	// Keep is 0 to keep none.
	Keep time.Duration `flag:"keep-records" group:"Storage" unit:"TIME" min:"0" default:"336h" doc:"Time for which records of completed operations are kept, for pages and forerunner history; 0 keeps none"`
	// Size limits their total size; the oldest are removed earlier then. Empty: 2G.
	Size string `tuning:"records_size" unit:"SIZE" default:"2G" doc:"Size limit of these records; the oldest are removed first"`
}

// Options are the options of Open and Follow.
type Options struct {
	Folder string
	Memory int64   // memory of the program, in bytes
	Shared *Shared // nil: no other scheduler replaces this one
	Logger *zap.Logger
}

// Shared is how schedulers that replace each other share records.
type Shared struct {
	Store records.Durable
	// Name is their common name.
	Name string
	// May reports whether this one may publish.
	May func() bool
}

// Records are the records of a serving scheduler.
type Records struct {
	*history.Store                // nil: none are kept
	relay          *relay.Relay   // nil: nobody can take this one's place
	into           *history.Store // takes those of others; nil: they would be here in memory only
}

// Open opens the records, and takes over those of the schedulers that this one replaces. If the
// folder cannot be used, they are kept in memory, up to a limit; but data of another version there
// is an error.
func (s *Settings) Open(ctx context.Context, o Options) (r Records, err error) {
	if s.Keep <= 0 {
		return r, nil
	}
	if r.relay, err = o.newRelay(); err != nil { // no reason not to serve
		o.Logger.Warn("records are not shared with other schedulers", zap.Error(err))
	}
	if r.Store, r.into, err = s.open(o, r.relay); err != nil {
		return r, errors.Join(err, r.Close())
	}
	if r.relay != nil && r.into != nil {
		limited, cancel := context.WithTimeout(ctx, catchUp)
		defer cancel()
		r.relay.Pull(limited, r.into) // or Run does
	}
	return r, nil
}

// open opens the store of records, which tells a relay what is added; nil: nobody wants to know.
// The second result is the same if it is on disk, else nil: what others have published would count
// as here, and be gone after a restart.
func (s *Settings) open(o Options, to *relay.Relay) (store, onDisk *history.Store, err error) {
	size, err := settings.ParseSize(s.Size)
	if err != nil {
		return nil, nil, fmt.Errorf("records_size: %w", err)
	}
	options := history.Options{Keep: s.Keep, MaxBytes: size, Memory: o.Memory, Logger: o.Logger}
	if to != nil {
		options.Added = to.Add
	}
	store, err = history.Open(o.Folder, options)
	if err != nil && !errors.Is(err, history.ErrFormat) {
		o.Logger.Warn("records of completed operations are kept in memory only", zap.String("folder", o.Folder), zap.Error(err))
		store, err = history.Open("", options)
		return store, nil, err
	}
	return store, store, err
}

// newRelay returns what hands records to the schedulers that take the place of this one; nil: none
// can.
func (o *Options) newRelay() (*relay.Relay, error) {
	if o.Shared == nil {
		return nil, nil
	}
	r, err := relay.New(relay.Options{
		Shared: o.Shared.Store, Name: o.Shared.Name, File: filepath.Join(o.Folder, relayFile), Logger: o.Logger, May: o.Shared.May,
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Run publishes new records until ctx ends.
func (r Records) Run(ctx context.Context) {
	if r.relay != nil {
		r.relay.Run(ctx, r.into)
	}
}

// Close closes the records.
func (r Records) Close() (err error) {
	if r.Store != nil {
		err = r.Store.Close()
	}
	if r.relay != nil {
		r.relay.Close()
	}
	return err
}
