package core

import (
	"errors"
	"fmt"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

// A QuotaKey says whose quota of what.
type QuotaKey struct{ Cohort, Instance string }

// A QuotaRecord is a quota in force.
type QuotaRecord struct {
	QuotaKey
	quota.Quota
}

// Errors of PutQuota.
var (
	// ErrNoCohort says that there is no cohort of that name.
	ErrNoCohort = errors.New("no such cohort")
	// ErrBadQuota says that a quota makes no sense.
	ErrBadQuota = errors.New("bad quota")
	// ErrTooManyQuotas says that a cohort has MaxQuotas.
	ErrTooManyQuotas = errors.New("too many quotas")
)

// MaxQuotas bounds the quotas of a cohort.
const MaxQuotas = 10_000

func (e PutQuota) apply(s *State) error {
	k := e.QuotaKey
	c := s.dispatch.cohort(k.Cohort)
	if err := s.dispatch.admitQuota(c, k, e.Quota); err != nil {
		return fmt.Errorf("put quota of %q in cohort %q: %w", k.Instance, k.Cohort, err)
	}
	s.dispatch.setQuota(c, k.Instance, e.Quota)
	if e.Preempt {
		c.stopExcess(k.Instance)
	}
	return nil
}

func (e DeleteQuota) apply(s *State) error {
	c := s.dispatch.cohort(e.Cohort)
	if c == nil {
		return ErrUnknown
	}
	if _, known := c.quotas[e.Instance]; !known {
		return ErrUnknown
	}
	s.dispatch.setQuota(c, e.Instance, quota.Quota{})
	return nil
}

// admitQuota returns why a quota is not accepted.
func (d *dispatcher) admitQuota(c *cohort, k QuotaKey, q quota.Quota) error {
	if c == nil && len(d.cohorts) == 0 {
		return fmt.Errorf("%w: the scheduler's --config names none", ErrNoCohort)
	} else if c == nil {
		return fmt.Errorf("%w; there are %s", ErrNoCohort, d.cfg.Quotas.Names())
	}
	if err := instance.Check(k.Instance); err != nil {
		return fmt.Errorf("%w: %w", ErrBadQuota, err)
	}
	if n := len(k.Instance); n > longestKey {
		return fmt.Errorf("%w: the instance name has %d bytes, more than %d", ErrBadQuota, n, longestKey)
	}
	if err := q.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrBadQuota, err)
	}
	if q == (quota.Quota{}) {
		return fmt.Errorf("%w: neither a minimum nor a maximum; delete it instead", ErrBadQuota)
	}
	if _, known := c.quotas[k.Instance]; !known && len(c.quotas) >= MaxQuotas {
		return fmt.Errorf("%w: there are %d", ErrTooManyQuotas, len(c.quotas))
	}
	return nil
}

// setQuota puts a quota in force; the zero Quota is none.
func (d *dispatcher) setQuota(c *cohort, instance string, q quota.Quota) {
	c.set(instance, q)
	d.rehouse(c, instance)
}
