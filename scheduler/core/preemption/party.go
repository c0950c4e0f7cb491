package preemption

import (
	"cmp"
	"slices"
	"time"

	"github.com/forerunner-build/forerunner/scheduler/core/fifo"
	"github.com/forerunner-build/forerunner/scheduler/core/quota"
)

// A party is an instance of which tasks wait in a cohort, or for which others must yield. However
// many queues it waits in, a change of its use looks only at those for which it matters.
type party struct {
	instance string
	// tiers are by the cost of a run, the least first.
	tiers []*tier
	// waiting counts the tasks in all lines.
	waiting int
	// stirred: it is in Cohort.stirred. round counts how often it came there; since then so many
	// workers were woken for its tasks.
	stirred bool
	round   uint64
	woken   int
}

// A tier is the lines of a party in queues with the same cost of a run.
type tier struct {
	party *party
	cost  int64
	lines int
	// below is since when the instance is below its minimum, and may run more; zero: it is not.
	below time.Time
	// resting are lines whose timer is not set although some of their tasks have no other one that
	// must yield: none must for now.
	resting fifo.List[*Line]
	// exposed are lines that may have takers, those at which Cohort.Stirred looked last at the end.
	exposed fifo.List[*Line]
}

// tierOf returns a party's tier of a cost, made if need be.
func (c *Cohort) tierOf(instance string, cost int64) *tier {
	p := c.parties[instance]
	if p == nil {
		p = &party{instance: instance}
		c.parties[instance] = p
	}
	i, found := slices.BinarySearchFunc(p.tiers, cost, func(t *tier, cost int64) int {
		return cmp.Compare(t.cost, cost)
	})
	if !found {
		p.tiers = slices.Insert(p.tiers, i, &tier{party: p, cost: cost})
		c.settleTier(p.tiers[i])
	}
	return p.tiers[i]
}

// drop forgets a line of a tier, and what has no other one.
func (c *Cohort) drop(t *tier) {
	if t.lines--; t.lines > 0 {
		return
	}
	p := t.party
	if p.tiers = slices.DeleteFunc(p.tiers, func(x *tier) bool { return x == t }); len(p.tiers) == 0 {
		delete(c.parties, p.instance)
		c.changes.Forget(p.instance)
	}
}

// settle handles a change of the use or quota of an instance: changed says whether the instance may
// now run other tasks.
func (c *Cohort) settle(instance string, changed bool) {
	p := c.parties[instance]
	if p == nil {
		return
	}
	if changed {
		c.changes.Note(instance)
	}
	for _, t := range p.tiers {
		c.settleTier(t)
	}
}

// settleTier sets the timers of a tier's lines when its instance comes below its minimum. When it
// is above again they are still set: they do nothing then. While it is below, the next resting
// lines have their timers set if more tasks must yield than do.
func (c *Cohort) settleTier(t *tier) {
	switch {
	case c.ledger.Standing(t.party.instance, t.cost) != quota.BelowMin:
		t.below = time.Time{}
	case t.below.IsZero():
		t.below = c.Now
		for l, some := t.resting.Front(); some; l, some = t.resting.Front() {
			c.arm(l)
		}
	default:
		c.armNext(t)
	}
}

// armNext sets the timer of the next resting line of a tier, if more tasks must yield than do. A
// line whose tasks have not waited for long enough does not keep others from their turn.
func (c *Cohort) armNext(t *tier) {
	if t.below.IsZero() || c.ledger.Missing(t.party.instance, t.cost) == 0 {
		return
	}
	for l, some := t.resting.Front(); some; l, some = t.resting.Front() {
		if c.arm(l); !c.Timers.When(&l.timer).After(c.Now) {
			return
		}
	}
}

// rest adds a line to those that rest, rouse removes it.
func (l *Line) rest() {
	if l.rests == nil {
		l.rests = l.tier.resting.PushBack(l)
	}
}

func (l *Line) rouse() {
	if l.rests != nil {
		l.tier.resting.Remove(l.rests)
		l.rests = nil
	}
}

// Expose notes that the queue has a taker: a worker that could run a task of it now, or soon, if
// quotas let it. Nothing happens to a nil Queue.
func (q *Queue) Expose() {
	if q == nil {
		return
	}
	for l, some := q.hidden.Front(); some; l, some = q.hidden.Front() {
		q.hidden.Remove(l.anchor)
		l.exposed, l.seen = true, l.tier.party.round
		l.anchor = l.tier.exposed.PushBack(l)
	}
}

// hide undoes Expose for one line.
func (l *Line) hide() {
	if l.exposed {
		l.tier.exposed.Remove(l.anchor)
	} else if l.anchor != nil {
		l.queue.hidden.Remove(l.anchor)
	}
	l.exposed, l.anchor = false, l.queue.hidden.PushBack(l)
}

// stir has Stirred look at an instance, which may now run more.
func (c *Cohort) stir(instance string) {
	c.eased = true
	p := c.parties[instance]
	if p == nil {
		return
	}
	p.round, p.woken = p.round+1, 0
	if !p.stirred {
		p.stirred = true
		c.stirred = append(c.stirred, p)
	}
}

// Eased reports whether something may run now that could not when this was asked last.
func (c *Cohort) Eased() bool {
	eased := c.eased
	c.eased = false
	return eased
}

// Stirred returns a line that may have takers, and whose instance may now run more: the next
// one that has not been Seen since; nil if there is none. When the instance is at its maximum, or
// will be when the woken workers call, the rest of its lines wait for it to be below again, and go
// first then.
func (c *Cohort) Stirred() *Line {
	for len(c.stirred) > 0 {
		p := c.stirred[0]
		for _, t := range p.tiers {
			l, some := t.exposed.Front()
			if some && l.seen != p.round && c.headroom(t) > 0 {
				return l
			}
		}
		p.stirred = false
		c.stirred[0] = nil
		if c.stirred = c.stirred[1:]; len(c.stirred) == 0 {
			c.stirred = nil
		}
	}
	return nil
}

// headroom returns how many tasks of a tier quotas let start, besides those for which workers were
// woken.
func (c *Cohort) headroom(t *tier) int64 {
	return c.ledger.Headroom(t.party.instance, t.cost) - int64(t.party.woken)
}

// Seen says that the takers of a line have been offered its tasks, and how many of them were woken.
// more: there may be more takers; else the line is not looked at again before Queue.Expose.
func (l *Line) Seen(woken int, more bool) {
	l.tier.party.woken += woken
	switch l.seen = l.tier.party.round; {
	case l.anchor == nil: // meanwhile it is gone
	case more && l.exposed:
		l.tier.exposed.MoveToBack(l.anchor)
	default:
		l.hide()
	}
}
