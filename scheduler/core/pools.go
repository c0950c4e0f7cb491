package core

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/offer"
	"github.com/forerunner-build/forerunner/scheduler/core/preemption"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
	"github.com/forerunner-build/forerunner/scheduler/core/sweep"
	"github.com/forerunner-build/forerunner/scheduler/core/timer"
	"github.com/forerunner-build/forerunner/scheduler/core/tuning"
)

// Efforts, in looks at a task that stays where it is. The remaining work of one event is done by
// later events, the first of them at once: tasks that wait where no worker serves go to any worker
// that comes back there, and tasks that are about to fail may still be served.
//
// moveEffort is the cost of a task that moves to another location, endEffort that of one that ends
// or has a timer due.
const moveEffort, endEffort = 4, 16

// poolsPerEffort is how many pools are looked at for an effort of one, drainsPerEffort how many
// drains are compared with a worker.
const poolsPerEffort, drainsPerEffort = 8, 8

// A cohort is the pools that instances share by quotas.
type cohort struct {
	*preemption.Cohort
	pools []*pool
}

// capacity is how much the workers of a cohort that take work can run at once.
func (c *cohort) capacity() (n int64) {
	for _, p := range c.pools {
		for _, q := range p.queues {
			n += int64(q.serving) * c.Cost(q.class)
		}
	}
	return n
}

// pools are the existing pools, and choose the queue for an action.
type pools struct {
	*offer.Index[*pool]
	cfg *tuning.Config
	// cohorts are the cohorts in the configuration.
	cohorts []*cohort
	// idling counts the idle workers of all of them.
	idling int
}

// unknownGrace is how long an action waits for a worker with a property whose name no worker has
// ever had. It is also how long workers may take to come after the start.
const unknownGrace = 5 * time.Second

func newPools(clock *timer.Clock, cfg *tuning.Config) *pools {
	ps := &pools{Index: offer.NewIndex[*pool](), cfg: cfg}
	o := preemption.Options{Delay: cfg.PreemptionDelay, Grace: cfg.PreemptionGrace, Limit: cfg.MaxPreemptions}
	for _, c := range cfg.Quotas.Cohorts {
		ps.cohorts = append(ps.cohorts, &cohort{Cohort: preemption.New(c, clock, o)})
	}
	for _, c := range cfg.Sizes {
		ps.enter(c.Prefix, c.WorkerPlatform())
	}
	return ps
}

// enter returns the pool of workers with a prefix and platform, made if need be. It takes the place
// of another one, if there is narrower: itself, which serves more from now on, or the pool of workers
// that report less, for which the configuration has other terms.
func (ps *pools) enter(prefix string, platform request.Platform) (p, narrower *pool) {
	o := offer.Offer{Prefix: prefix, Platform: platform, Exact: ps.cfg.Match == tuning.MatchExact}
	terms := ps.cfg.TermsOf(prefix, platform)
	alike := func(p *pool) bool { return p.terms == terms }
	found, widen, ok := ps.Find(o, alike)
	switch {
	case !ok || widen != nil && !alike(widen):
		p = ps.newPool(o, terms)
		ps.declare(p)
		ps.Add(p)
		return p, widen
	case widen == nil:
		return found, nil
	}
	ps.Remove(widen)
	widen.Platform = platform
	ps.Add(widen)
	return widen, widen
}

// keeps reports whether a worker of a pool that reports a prefix and platform stays in it: not if it
// reports less than before, and the configuration has other terms for that.
func (ps *pools) keeps(p *pool, prefix string, platform request.Platform) bool {
	return p.Has(prefix, platform) &&
		(platform.ImpliedKey() == p.Platform.ImpliedKey() || ps.cfg.TermsOf(prefix, platform) == p.terms)
}

// discard removes a pool that has no workers.
func (ps *pools) discard(p *pool) {
	ps.Remove(p)
	p.leaveCohort()
}

// newPool returns a pool without workers.
func (ps *pools) newPool(o offer.Offer, terms tuning.Terms) *pool {
	p := &pool{Offer: o, idling: &ps.idling, terms: terms, levels: ps.cfg.LevelsOf(terms)}
	name, ok := ps.cfg.CohortOf(terms)
	if !ok {
		p.tree = levels.NewTree(p.levels, fair.Options{Avoid: avoided})
		return p
	}
	c := ps.cohort(name)
	p.cohort, c.pools = c, append(c.pools, p)
	if len(p.levels) == 0 || p.levels[0].Key != levels.KeyInstance {
		p.levels = append([]levels.Level{{Key: levels.KeyInstance}}, p.levels...)
	}
	p.tree = levels.NewTree(p.levels, fair.Options{Admit: c.Grade, Changes: c.Changes(), Avoid: avoided})
	return p
}

// mostKinds bounds the pools for which one declaration makes size classes: they stay for good.
const mostKinds = 16

// declare makes the queues of the size classes that are declared for a new pool, which then stays for
// good. A declaration is for all workers with its platform, whatever else their machines report, and
// holds for each kind of machine that has called, so that it does not matter which is the first.
// Before that a pool without implied properties stands for all; see dispatcher.succeed.
func (ps *pools) declare(p *pool) {
	for _, c := range ps.cfg.Sizes {
		if c.Prefix != p.Prefix || c.WorkerPlatform().Key() != p.Platform.Key() || ps.kinds(p) >= mostKinds {
			continue
		}
		p.startup, p.patience = c.Startup, c.Patience
		for _, class := range c.Classes {
			q := p.queue(class)
			q.declared, q.away, q.absence.patience, q.absence.since = true, true, c.Patience, math.MinInt64
		}
	}
}

// kinds counts the pools with declared size classes that differ from one only in their implied
// properties.
func (ps *pools) kinds(p *pool) (n int) {
	for other := range ps.All() {
		if other.Prefix == p.Prefix && other.Platform.Key() == p.Platform.Key() && other.hasDeclared() {
			n++
		}
	}
	return n
}

// cohort returns the one of a name; nil if there is none.
func (ps *pools) cohort(name string) *cohort {
	for _, c := range ps.cohorts {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// stopOverMax marks runs above the maximums of their instances, as operators have asked.
func (ps *pools) stopOverMax(e *sweep.Effort) {
	for _, c := range ps.cohorts {
		c.GoOn(func() bool { return e.Spend(moveEffort) })
	}
}

// match returns the queue that must run an action; nil if no worker can. A served queue, or a
// declared one if the action is patient, goes before one that is only open; then candidates chooses
// the pool. Between equal candidates, an action that starts on a smaller class goes where the
// largest class is largest, as it may have to run again there, and then where the wait is shortest.
// In that pool it is the wanted size class, where 0 is the largest; if may, unless it is nil, is
// false of that, the pool has none. If one action takes more than its instance's maximum it could
// wait for ever.
func (ps *pools) match(spec *request.Operation, class uint32, patient bool, may func(*queue) bool) *queue {
	var best, open *queue
	var rank offer.Candidate[*pool]
	fits := func(q *queue) bool { return (q.served() || patient && q.declared) && q.admits(spec.Instance) }
	again := func(q *queue) uint32 {
		if class == 0 {
			return 0
		}
		return q.pool.largest(fits).size()
	}
	for c := range ps.Candidates(spec) {
		if best != nil && !c.Equals(rank) {
			break
		}
		if q := c.Pool.suited(class, fits); q == nil {
			if open == nil {
				open = c.Pool.suited(class, func(q *queue) bool { return q.open() && q.admits(spec.Instance) })
			}
		} else if may != nil && !may(q) {
			continue
		} else if best == nil || again(q) > again(best) || again(q) == again(best) && q.sooner(best) {
			best, rank = q, c
		}
	}
	return cmp.Or(best, open)
}

// queueFor returns the queue that must run a task: one with other workers than those that it avoids,
// if there is one.
func (ps *pools) queueFor(t *task) *queue {
	if t.avoids() {
		if q := ps.besideFor(t, t.past.failed); q != nil {
			return q
		}
	}
	return ps.choose(t, nil)
}

// besideFor returns the queue that must run a task if the program of a key may not; nil: there is
// none where others take work.
func (ps *pools) besideFor(t *task, key string) *queue {
	others := func(q *queue) bool { return q.isServedBeside(key) }
	if q := ps.choose(t, others); q != nil && others(q) {
		return q
	}
	return nil
}

// choose is match for a task. One that failed on a small size class stays in its pool, where it
// runs on the largest.
func (ps *pools) choose(t *task, may func(*queue) bool) *queue {
	if t.pool != nil && t.course.largest() {
		if q := t.pool.largest(t.takenBy); q != nil {
			return q
		}
	}
	return ps.match(t.spec, t.class(), !t.impatient, may)
}

// stays reports whether a task of a queue, or an unmatched one for nil, is in the right place.
func (ps *pools) stays(t *task, q *queue) bool {
	return q != nil && t.takenBy(q) || ps.queueFor(t) == q
}

// hasOther reports whether another served queue may take some of a queue's tasks.
func (ps *pools) hasOther(q *queue) bool {
	for p := range ps.All() {
		if p.largest((*queue).served) != nil && (p == q.pool || p.mayTake(q)) {
			return true
		}
	}
	return false
}

// patience returns until when, by Clock.Awake, a task that is unmatched waits for a worker, where
// workers may come since begun: not for long if it asks for a property of which no worker has ever
// had the name, as where that is misspelt, unless there are classes of workers that may not have
// been started yet.
func (ps *pools) patience(t *task, begun time.Duration) time.Duration {
	long := timer.After(t.Since(), ps.cfg.MatchGrace)
	if ps.cfg.Match == tuning.MatchExact || len(ps.cfg.Sizes) > 0 || ps.Len() == 0 {
		return long
	}
	for _, name := range t.spec.Platform.Wants() {
		if ps.Knows(name) {
			continue
		}
		return min(max(t.Since(), begun)+unknownGrace, long)
	}
	return long
}

// explain says why no worker can serve an operation.
func (ps *pools) explain(spec *request.Operation) string {
	var staffed []offer.Staffed
	var never string
	for _, p := range ps.Sorted() {
		n := p.serving()
		if n == 0 {
			continue
		}
		staffed = append(staffed, offer.Staffed{Offer: p.Offer, Workers: n})
		if never == "" && p.cohort != nil && p.Serves(spec) {
			never = p.cohort.WhyNever(levels.Bounded(spec.Instance), p.smallest(0, (*queue).served).class)
		}
	}
	switch {
	case never != "":
		return never
	case len(staffed) > 0:
		return offer.Lack(spec, staffed)
	case slices.ContainsFunc(ps.Sorted(), (*pool).hasWorkers):
		return fmt.Sprintf("every connected worker is draining; the action asks for %s", spec.Platform)
	}
	return fmt.Sprintf("no worker is connected; the action asks for %s", spec.Platform)
}

// admitQuota returns why a quota is not accepted.
func (ps *pools) admitQuota(c *cohort, k quota.Key, q quota.Quota) error {
	if c == nil && len(ps.cohorts) == 0 {
		return fmt.Errorf("%w: the scheduler's --config names none", quota.ErrNoCohort)
	} else if c == nil {
		return fmt.Errorf("%w; there are %s", quota.ErrNoCohort, ps.cfg.Quotas.Names())
	}
	if err := instance.Check(k.Instance); err != nil {
		return fmt.Errorf("%w: %w", quota.ErrBad, err)
	}
	if n := len(k.Instance); n > levels.LongestKey {
		return fmt.Errorf("%w: the instance name has %d bytes, more than %d", quota.ErrBad, n, levels.LongestKey)
	}
	if err := q.Validate(); err != nil {
		return fmt.Errorf("%w: %w", quota.ErrBad, err)
	}
	if q == (quota.Quota{}) {
		return fmt.Errorf("%w: neither a minimum nor a maximum; delete it instead", quota.ErrBad)
	}
	if _, known := c.Quota(k.Instance); !known && c.Len() >= quota.MaxOfCohort {
		return fmt.Errorf("%w: there are %d", quota.ErrTooMany, c.Len())
	}
	return nil
}
