package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/proto/names"
	"github.com/forerunner-build/forerunner/records"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

// Quotas keeps quotas in one durable record.
type Quotas struct{ Store records.Durable }

// keptQuota is a quota as it is written, in JSON.
type keptQuota struct {
	Cohort   string `json:"cohort"`
	Instance string `json:"instance"`
	Min      int64  `json:"min"`
	Max      int64  `json:"max"`
}

// A change that conflicts with one of another scheduler is retried, quotaTries times in all, after
// random pauses, whose limit doubles from quotaPause up to quotaPatience.
const (
	quotaTries    = 20
	quotaPause    = time.Millisecond
	quotaPatience = 100 * time.Millisecond
)

// Key is the key of the record.
func (Quotas) Key() records.Key {
	return records.Key{Bucket: names.QuotasBucket, Digest: digest.Of(digest.SHA256, []byte("quotas"))}
}

// read returns the stored quotas, also in encoded form; that is nil if there are none.
func (f Quotas) read(ctx context.Context) (list []keptQuota, written []byte, err error) {
	k := Text{f.Store, f.Key()}
	if written, err = k.Read(ctx); written == nil || err != nil {
		if err != nil {
			err = fmt.Errorf("read quotas: %w", err)
		}
		return nil, nil, err
	}
	if err := json.Unmarshal(written, &list); err != nil {
		return nil, nil, fmt.Errorf("read quotas: %s: %w", k, err)
	}
	return list, written, nil
}

// Load returns the stored quotas.
func (f Quotas) Load(ctx context.Context) ([]quota.Record, error) {
	list, _, err := f.read(ctx)
	quotas := make([]quota.Record, len(list))
	for i, k := range list {
		quotas[i] = quota.Record{
			Key:   quota.Key{Cohort: k.Cohort, Instance: k.Instance},
			Quota: quota.Quota{Min: k.Min, Max: k.Max},
		}
	}
	return quotas, err
}

// Keep changes one of the stored quotas, and returns when that is durable. A zero quota is removed.
func (f Quotas) Keep(ctx context.Context, r quota.Record) error {
	err := f.change(ctx, r)
	for try := 1; errors.Is(err, records.ErrConflict) && try < quotaTries; try++ {
		// At random, so that two do not meet again and again.
		pause := time.NewTimer(rand.N(min(quotaPause<<(try-1), quotaPatience)))
		select {
		case <-pause.C:
			err = f.change(ctx, r)
		case <-ctx.Done():
			pause.Stop()
			return fmt.Errorf("keep quota: %w", context.Cause(ctx))
		}
	}
	return err
}

func (f Quotas) change(ctx context.Context, r quota.Record) error {
	list, old, err := f.read(ctx)
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(k keptQuota) bool { return k.Cohort == r.Cohort && k.Instance == r.Instance })
	if r.Quota != (quota.Quota{}) {
		list = append(list, keptQuota{r.Cohort, r.Instance, r.Min, r.Max})
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return f.Store.CompareAndSwap(ctx, f.Key(), old, text)
}

// TakeOverQuotas moves quotas that an earlier version stored among the hints. It leaves none there,
// so that they do not return after their removal.
func TakeOverQuotas(ctx context.Context, hints records.Hints, quotas Quotas) error {
	if _, now, err := quotas.read(ctx); now != nil || err != nil {
		return err
	}
	text, err := hints.Get(ctx, quotas.Key())
	if errors.Is(err, records.ErrNotFound) {
		return nil
	}
	if err == nil {
		err = quotas.Store.Put(ctx, quotas.Key(), text)
	}
	if err == nil {
		err = hints.Put(ctx, quotas.Key(), []byte("[]"))
	}
	if err != nil {
		return fmt.Errorf("take over quotas: %w", err)
	}
	return nil
}
