package farm

import (
	"context"
	"errors"
	"path/filepath"

	"go.uber.org/zap"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/farm/durable"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

// durableFolder is where a scheduler keeps data that must not be lost, in its data folder.
const durableFolder = "durable"

// durable returns the stores of drains and quotas: schedulers with a lease share drains, those that
// share a store have the same quotas, and the rest is in a folder of this scheduler.
func (s *Scheduler) durable(shared records.Durable) (drains durable.Text, quotas durable.Quotas) {
	own := records.NewFolder(filepath.Join(s.Data, durableFolder))
	drains = durable.Text{Store: own, Key: records.Key{Bucket: names.DrainsBucket, Digest: digest.Of(digest.SHA256, []byte(s.Lease))}}
	quotas = durable.Quotas{Store: own}
	if shared != nil {
		quotas.Store = shared
	}
	if s.Lease != "" {
		drains.Store = shared
	}
	return drains, quotas
}

// takeOver moves data of earlier versions to their present place: drains from a file of their own,
// quotas from the hints.
func (s *Scheduler) takeOver(ctx context.Context, hints records.Hints, drains durable.Text, quotas durable.Quotas) error {
	if s.Lease == "" {
		if err := durable.TakeOverDrains(ctx, filepath.Join(s.Data, "drains.json"), drains); err != nil {
			return err
		}
	}
	if records.IsRedisURL(string(s.State)) {
		return nil
	}
	return durable.TakeOverQuotas(ctx, hints, quotas)
}

// firstQuotas returns the quotas with which s begins. A store that is shared is read again and
// again: if it does not answer now, s begins without any.
func (s *Scheduler) firstQuotas(ctx context.Context, f durable.Quotas, shared bool) ([]quota.Record, error) {
	quotas, err := f.Load(ctx)
	if away := (durable.Unanswered{}); shared && errors.As(err, &away) && ctx.Err() == nil {
		s.Logger.Warn("cannot read quotas; none is in force until this works", zap.Error(err))
		return nil, nil
	}
	return quotas, err
}
