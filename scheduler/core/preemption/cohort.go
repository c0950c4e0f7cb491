package preemption

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/proto/plural"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
)

// Options are the times and limits of a cohort.
type Options struct {
	// Delay is how long an action of an instance below its minimum waits before other actions are
	// chosen to be stopped for it.
	Delay time.Duration
	// Grace is how long the chosen ones may then still run to their end.
	Grace time.Duration
	// Limit is how often the same task may be stopped this way.
	Limit int
}

// A Cohort is a set of workers that instances share by quotas.
type Cohort struct {
	quota.Cohort
	*timer.Clock
	options Options
	// quotas are the quotas of ledger, by instance.
	quotas map[string]quota.Quota
	ledger *quota.Ledger
	// parties are those that wait, by instance. changes are the changes of their grades.
	parties map[string]*party
	changes fair.Changes
	// stirred are parties that may run more, with lines at which Stirred has not looked since; eased
	// is the answer of Eased.
	stirred []*party
	eased   bool
	// above are the instances of which runs above the maximum are still to be marked.
	above []string
	// preemptions counts the runs that were stopped.
	preemptions uint64
}

// New returns a cohort without quotas.
func New(c quota.Cohort, clock *timer.Clock, o Options) *Cohort {
	return &Cohort{
		Cohort: c, Clock: clock, options: o, quotas: map[string]quota.Quota{}, parties: map[string]*party{},
		ledger: quota.NewLedger(o.Limit),
	}
}

// Grade returns the grades of instances' branches, for fair.Options.
func (c *Cohort) Grade(kind uint32, instance string) fair.Grade {
	switch c.ledger.Standing(instance, c.Cost(kind)) {
	case quota.AtMax:
		return fair.Wait
	case quota.BelowMin:
		return fair.First
	}
	return fair.Share
}

// Changes returns the changes of the grades, for fair.Options.
func (c *Cohort) Changes() *fair.Changes { return &c.changes }

// Set sets a quota; the zero Quota removes it.
func (c *Cohort) Set(instance string, q quota.Quota) {
	c.quotas[instance] = q
	if q == (quota.Quota{}) {
		delete(c.quotas, instance)
	}
	c.ledger.Set(instance, q)
	c.settle(instance, true)
	c.stir(instance)
}

// StopOverMax makes GoOn mark an instance's runs above its maximum. They yield to no other
// instance.
func (c *Cohort) StopOverMax(instance string) {
	if !slices.Contains(c.above, instance) {
		c.above = append(c.above, instance)
	}
}

// GoOn marks runs above maximums, as long as spend, which it calls before each, returns true.
func (c *Cohort) GoOn(spend func() bool) {
	for len(c.above) > 0 {
		r := c.ledger.OverMax(c.above[0])
		switch {
		case r == nil:
			c.above = c.above[1:]
			continue
		case !spend():
			return
		}
		c.ledger.Mark(r)
		sh := r.Owner.(*Share)
		sh.mark = &Mark{share: sh, deadline: c.Now}
	}
}

// IsBehind reports whether GoOn or Stirred is to be called again.
func (c *Cohort) IsBehind() bool { return len(c.above) > 0 || len(c.stirred) > 0 }

// forget drops a line in which no task waits, and for which none must yield. The next line has its
// turn.
func (c *Cohort) forget(l *Line) {
	c.Timers.Stop(&l.timer)
	l.rouse()
	l.hide()
	l.queue.hidden.Remove(l.anchor)
	l.anchor = nil
	delete(l.queue.lines, l.tier.party.instance)
	c.drop(l.tier)
	c.armNext(l.tier)
}

// A Use is an instance's quota in a cohort, its use, and the number of its waiting actions.
type Use struct {
	quota.Key
	quota.Use
	Waiting int
}

// Uses returns the instances of the cohort, in order.
func (c *Cohort) Uses() []Use {
	waiting := map[string]int{}
	for instance := range c.quotas {
		waiting[instance] = 0
	}
	for instance := range c.ledger.Used() {
		waiting[instance] = 0
	}
	for instance, p := range c.parties {
		waiting[instance] = p.waiting
	}
	uses := make([]Use, 0, len(waiting))
	for _, instance := range slices.Sorted(maps.Keys(waiting)) {
		uses = append(uses, Use{
			quota.Key{Cohort: c.Name, Instance: instance},
			c.ledger.Of(instance), waiting[instance],
		})
	}
	return uses
}

// Quota returns the quota of an instance; false if it has none.
func (c *Cohort) Quota(instance string) (quota.Quota, bool) {
	q, ok := c.quotas[instance]
	return q, ok
}

// Quotas returns all quotas, in any order.
func (c *Cohort) Quotas() (records []quota.Record) {
	for instance, q := range c.quotas {
		records = append(records, quota.Record{Key: quota.Key{Cohort: c.Name, Instance: instance}, Quota: q})
	}
	return records
}

// Len returns the number of quotas.
func (c *Cohort) Len() int { return len(c.quotas) }

// Minimums returns the sum of all minimums.
func (c *Cohort) Minimums() int64 { return c.ledger.Minimums() }

// Used returns the use of each instance with running tasks.
func (c *Cohort) Used() map[string]int64 { return c.ledger.Used() }

// Preemptions returns the number of stopped runs.
func (c *Cohort) Preemptions() uint64 { return c.preemptions }

// WhyHeld returns the reason why an instance may not start a task on workers of a size class.
func (c *Cohort) WhyHeld(instance string, class uint32) string {
	u := c.ledger.Of(instance)
	return fmt.Sprintf("at its maximum: uses %d of %s of cohort %q, one more takes %d",
		u.Used, c.units(u.Max), c.Name, c.Cost(class))
}

// WhyNever returns the reason why an instance can never start a task on workers of a size class,
// the smallest one.
func (c *Cohort) WhyNever(instance string, class uint32) string {
	return fmt.Sprintf("one action takes %s of cohort %q on the smallest worker, "+
		"more than the maximum of instance name %q, %d",
		c.units(c.Cost(class)), c.Name, instance, c.quotas[instance].Max)
}

// units formats a number in the unit of the cohort.
func (c *Cohort) units(n int64) string {
	if c.Unit == quota.Slots {
		return plural.Of(n, "slot")
	}
	return plural.Of(n, "size class unit")
}
