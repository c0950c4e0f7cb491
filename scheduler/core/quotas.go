package core

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

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

// A QuotaUse is what an instance has of a cohort, what it uses now, and how many actions
// it has waiting there.
type QuotaUse struct {
	QuotaKey
	quota.Use
	Waiting int
}

// A CohortView is what State knows of one cohort. It is a value.
type CohortView struct {
	quota.Cohort
	// Capacity is what its workers that take work can run at once, Used what they run of
	// known instances, Minimums the sum of what is guaranteed; all in its unit.
	Capacity, Used, Minimums int64
	// Preemptions counts the runs that were stopped.
	Preemptions uint64
	// Uses are the instances with a quota, or with something that runs or waits, in their order.
	Uses []QuotaUse
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
	if err := s.admitQuota(c, k, e.Quota); err != nil {
		return fmt.Errorf("put quota of %q in cohort %q: %w", k.Instance, k.Cohort, err)
	}
	s.setQuota(c, k.Instance, e.Quota)
	if e.Preempt {
		c.stopExcess(k.Instance)
	}
	return nil
}

// admitQuota returns why a quota is not accepted.
func (s *State) admitQuota(c *cohort, k QuotaKey, q quota.Quota) error {
	if c == nil && len(s.dispatch.cohorts) == 0 {
		return fmt.Errorf("%w: the scheduler's --config names none", ErrNoCohort)
	} else if c == nil {
		return fmt.Errorf("%w; there are %s", ErrNoCohort, s.cfg.Quotas.Names())
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

func (e DeleteQuota) apply(s *State) error {
	c := s.dispatch.cohort(e.Cohort)
	if c == nil {
		return ErrUnknown
	}
	if _, known := c.quotas[e.Instance]; !known {
		return ErrUnknown
	}
	s.setQuota(c, e.Instance, quota.Quota{})
	return nil
}

// setQuota puts a quota in force; the zero Quota is none.
func (s *State) setQuota(c *cohort, instance string, q quota.Quota) {
	c.set(instance, q)
	s.dispatch.rehouse(c, instance)
}

// QuotaRecords returns all quotas in force, in the order of their keys.
func (s *State) QuotaRecords() (records []QuotaRecord) {
	for _, c := range s.dispatch.cohorts {
		for instance, q := range c.quotas {
			records = append(records, QuotaRecord{QuotaKey{c.Name, instance}, q})
		}
	}
	slices.SortFunc(records, func(a, b QuotaRecord) int {
		return cmp.Or(cmp.Compare(a.Cohort, b.Cohort), cmp.Compare(a.Instance, b.Instance))
	})
	return records
}

// Cohorts returns what is known of all cohorts, in the order of the configuration.
func (s *State) Cohorts() []CohortView {
	views := make([]CohortView, 0, len(s.dispatch.cohorts))
	for _, c := range s.dispatch.cohorts {
		v := CohortView{
			Cohort: c.Cohort, Capacity: c.capacity(), Minimums: c.ledger.Minimums(),
			Preemptions: c.preemptions, Uses: s.quotaUses(c),
		}
		for _, u := range v.Uses {
			v.Used += u.Used
		}
		views = append(views, v)
	}
	return views
}

// A QuotaRun is a run that counts.
type QuotaRun struct {
	// Operation was the first that asked for the action.
	Operation *Operation
	Worker    string
	Started   time.Time
	Cost      int64
}

// QuotaRuns returns what the uses consist of that Cohorts tells as of the same event, in the order of
// the workers' keys.
func (s *State) QuotaRuns() map[QuotaKey][]QuotaRun {
	runs := map[QuotaKey][]QuotaRun{}
	for _, w := range s.workers.sorted() {
		sh := w.share()
		if sh == nil {
			continue
		}
		k := QuotaKey{sh.cohort.Name, sh.instance}
		runs[k] = append(runs[k], QuotaRun{w.task.spec, w.key, w.task.started, sh.cohort.Cost(w.queue.class)})
	}
	return runs
}

// capacity is what the workers of a cohort that take work can run at once.
func (c *cohort) capacity() (n int64) {
	for _, p := range c.pools {
		for _, q := range p.queues {
			n += int64(q.serving) * c.Cost(q.class)
		}
	}
	return n
}

// quotaUses returns the instances of a cohort in their order.
func (s *State) quotaUses(c *cohort) []QuotaUse {
	waiting := map[string]int{}
	for instance := range c.quotas {
		waiting[instance] = 0
	}
	for instance := range c.ledger.Used() {
		waiting[instance] = 0
	}
	for _, p := range c.pools {
		for _, q := range p.queues {
			for instance, l := range q.lines {
				waiting[instance] += l.tasks.len()
			}
		}
	}
	uses := make([]QuotaUse, 0, len(waiting))
	for _, instance := range slices.Sorted(maps.Keys(waiting)) {
		uses = append(uses, QuotaUse{QuotaKey{c.Name, instance}, c.ledger.Of(instance), waiting[instance]})
	}
	return uses
}

// whyHeld says why an instance may start nothing on workers of a size class.
func (c *cohort) whyHeld(instance string, class uint32) string {
	u := c.ledger.Of(instance)
	return fmt.Sprintf("at its maximum: uses %d of %d %s of cohort %q, one more takes %d",
		u.Used, u.Max, c.unit(), c.Name, c.Cost(class))
}

// whyNoRoom says why an instance may never start anything there; class is the smallest one.
func (c *cohort) whyNoRoom(instance string, class uint32) string {
	return fmt.Sprintf("one action takes %d %s of cohort %q on the smallest worker, more than the maximum of instance name %q, %d",
		c.Cost(class), c.unit(), c.Name, instance, c.quotas[instance].Max)
}

// unit names what the cohort counts.
func (c *cohort) unit() string {
	if c.Unit == quota.Slots {
		return "slots"
	}
	return "size class units"
}
