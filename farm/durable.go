package farm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
)

// durableFolder is where a scheduler keeps what may not be lost, in its data folder.
const durableFolder = "durable"

// A kept text is one durable record.
type kept struct {
	store records.Durable
	key   records.Key
}

// String says where it is.
func (k kept) String() string {
	if folder, ok := k.store.(*records.Folder); ok {
		return folder.Path(k.key)
	}
	return "record " + k.key.String()
}

// read returns nil if there is none.
func (k kept) read(ctx context.Context) ([]byte, error) {
	text, err := k.store.Get(ctx, k.key)
	switch {
	case errors.Is(err, records.ErrNotFound):
		return nil, nil
	case errors.Is(err, records.ErrDamaged):
		return nil, err
	case err != nil:
		return nil, unanswered{err}
	}
	return text, nil
}

// write keeps all of text or nothing of it.
func (k kept) write(ctx context.Context, text []byte) error { return k.store.Put(ctx, k.key, text) }

// durable returns where drains and quotas are kept: schedulers that take turns share drains, those
// that share a store have the same quotas, and the rest is in a folder of this one's.
func (s *Scheduler) durable(shared records.Durable) (drains kept, quotas quotaFile) {
	own := records.NewFolder(filepath.Join(s.Data, durableFolder))
	drains = kept{own, records.Key{Bucket: names.DrainsBucket, Digest: digest.Of(digest.SHA256, []byte(s.Lease))}}
	quotas = quotaFile{own}
	if shared != nil {
		quotas.store = shared
	}
	if s.Lease != "" {
		drains.store = shared
	}
	return drains, quotas
}

// takeOver moves what an earlier version kept elsewhere to where it is kept now: drains in a file of
// their own, quotas among the hints.
func (s *Scheduler) takeOver(ctx context.Context, hints records.Hints, drains kept, quotas quotaFile) error {
	if s.Lease == "" {
		if err := takeOverDrains(ctx, filepath.Join(s.Data, "drains.json"), drains); err != nil {
			return err
		}
	}
	if records.IsRedisURL(string(s.State)) {
		return nil
	}
	return takeOverQuotas(ctx, hints, quotas)
}

func takeOverDrains(ctx context.Context, file string, drains kept) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read drains: %w", err)
	}
	if _, err := parseDrains(text, file); err != nil {
		return err
	}
	now, err := drains.read(ctx)
	if err == nil && now == nil {
		err = drains.write(ctx, text)
	}
	if err != nil {
		return fmt.Errorf("take over drains from %s: %w", file, err)
	}
	return os.Remove(file)
}

// takeOverQuotas leaves none among the hints, so that who removes those that are kept has none.
func takeOverQuotas(ctx context.Context, hints records.Hints, quotas quotaFile) error {
	if _, now, err := quotas.read(ctx); now != nil || err != nil {
		return err
	}
	text, err := hints.Get(ctx, quotas.key())
	if errors.Is(err, records.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = quotas.store.Put(ctx, quotas.key(), text)
	}
	if err == nil {
		err = hints.Put(ctx, quotas.key(), []byte("[]"))
	}
	if err != nil {
		return fmt.Errorf("take over quotas: %w", err)
	}
	return nil
}
