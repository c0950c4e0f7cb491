package quota

import (
	"errors"
	"fmt"
	"time"
)

// A Quota is the guarantee and the limit of an instance in a cohort, in its unit. The zero Quota
// guarantees and limits nothing.
type Quota struct {
	// Min is guaranteed.
	Min int64
	// Max is the limit; 0 is no limit.
	Max int64
}

// most exceeds any use, and is so small that sums of it do not overflow.
const most = 1_000_000_000_000

// Validate returns an error if q is inconsistent.
func (q Quota) Validate() error {
	switch {
	case q.Min < 0 || q.Max < 0:
		return errors.New("a quota is not negative")
	case q.Min > most || q.Max > most:
		return fmt.Errorf("a quota is at most %d", int64(most))
	case q.Max > 0 && q.Max < q.Min:
		return fmt.Errorf("the maximum, %d, is less than the minimum, %d", q.Max, q.Min)
	}
	return nil
}

// A Standing is the relation of an instance's use to its quota.
type Standing uint8

// The standings.
const (
	// AtMax: it may not run more.
	AtMax Standing = iota
	// Between its minimum and its maximum.
	Between
	// BelowMin: it goes before all others.
	BelowMin
)

// A Run is a running task. It is part of its owner. The owner fills in the exported fields before
// Start, and may change those of the second group later, with Fix.
type Run struct {
	Owner    any
	Instance string
	// Kind identifies runs whose slots are interchangeable; compared by ==.
	Kind any
	// Cost is the same for all runs of a kind.
	Cost    int64
	Started time.Time

	// Priority: of an instance's runs, the one with the highest value is stopped first.
	Priority int32
	// Busy: its command runs. A run that is still being prepared loses less when it is stopped.
	Busy bool
	// Preempted is how often the task has been stopped before.
	Preempted int
	// Shielded: it must not be stopped.
	Shielded bool

	account *account
	// marked: it must be stopped, for the instance below its minimum in this field or, if that is
	// nil, because its own instance is above its maximum.
	marked bool
	forWho *account
	order  uint64
	// slot is its place in the heap of its account and kind.
	slot int
}

// An account is the Ledger's state of an instance. It exists while the instance has a quota, a run,
// or a promise.
type account struct {
	instance string
	quota    Quota
	// used is the cost of its runs, marked that of its runs that must be stopped, promised that of
	// others' runs that must be stopped for it.
	used, marked, promised int64
	// kinds hold its runs.
	kinds map[any]*runs
}

// A Ledger keeps the account of one cohort.
type Ledger struct {
	// limit is how often the same may be stopped.
	limit    int
	accounts map[string]*account
	// kinds are the same runs as in accounts.
	kinds map[any]map[*account]*runs
	// largest is the largest cost in any question so far.
	largest int64
	started uint64
	minSum  int64
}

// NewLedger returns an empty Ledger that lets the same task be stopped limit times.
func NewLedger(limit int) *Ledger {
	return &Ledger{limit: limit, accounts: map[string]*account{}, kinds: map[any]map[*account]*runs{}}
}

func (l *Ledger) account(instance string) *account {
	a := l.accounts[instance]
	if a == nil {
		a = &account{instance: instance, kinds: map[any]*runs{}}
		l.accounts[instance] = a
	}
	return a
}

// tidy drops an account that is of no use.
func (l *Ledger) tidy(a *account) {
	if a.quota == (Quota{}) && len(a.kinds) == 0 && a.promised == 0 {
		delete(l.accounts, a.instance)
	}
}

// Set gives an instance a quota; the zero Quota removes it. Marked runs stay marked until a call of
// Deserved.
func (l *Ledger) Set(instance string, q Quota) {
	a := l.account(instance)
	l.minSum += q.Min - a.quota.Min
	a.quota = q
	l.tidy(a)
}

// A Use is the quota and the use of an instance.
type Use struct {
	Quota
	Used int64
}

// Of returns the quota and the use of an instance.
func (l *Ledger) Of(instance string) Use {
	a := l.accounts[instance]
	if a == nil {
		return Use{}
	}
	return Use{a.quota, a.used}
}

// Minimums returns the sum of all minimums.
func (l *Ledger) Minimums() int64 { return l.minSum }

// Used returns the use of each instance with running tasks.
func (l *Ledger) Used() map[string]int64 {
	used := map[string]int64{}
	for name, a := range l.accounts {
		if a.used > 0 {
			used[name] = a.used
		}
	}
	return used
}

// Standing returns whether an instance may start a run of a cost.
func (l *Ledger) Standing(instance string, cost int64) Standing {
	l.largest = max(l.largest, cost)
	a := l.accounts[instance]
	switch {
	case a == nil:
		return Between
	case a.quota.Max > 0 && a.used+cost > a.quota.Max:
		return AtMax
	case a.used < a.quota.Min:
		return BelowMin
	}
	return Between
}

// IsBelowMin reports whether an instance uses less than its minimum.
func (l *Ledger) IsBelowMin(instance string) bool {
	a := l.accounts[instance]
	return a != nil && a.used < a.quota.Min
}

// Missing returns how many more runs of a cost bring an instance to its minimum, besides the
// promised ones.
func (l *Ledger) Missing(instance string, cost int64) int64 {
	a := l.accounts[instance]
	if a == nil {
		return 0
	}
	used := a.used + a.promised
	n := (a.quota.Min - used + cost - 1) / cost
	if a.quota.Max > 0 {
		n = min(n, (a.quota.Max-used)/cost)
	}
	return max(n, 0)
}

// Headroom returns how many runs of a cost an instance may start.
func (l *Ledger) Headroom(instance string, cost int64) int64 {
	if a := l.accounts[instance]; a != nil {
		return a.headroom(a.used, cost)
	}
	return most
}

// HeadroomWithout returns how many runs of the cost of one that runs its instance could start if it
// did not.
func (l *Ledger) HeadroomWithout(r *Run) int64 {
	return r.account.headroom(r.account.used-r.Cost, r.Cost)
}

func (a *account) headroom(used, cost int64) int64 {
	if a.quota.Max == 0 {
		return most
	}
	return max((a.quota.Max-used)/cost, 0)
}

// Start counts a run. It reports whether the instance's Standing may have changed, for a cost that
// was asked about before.
func (l *Ledger) Start(r *Run) (changed bool) {
	a := l.account(r.Instance)
	l.started++
	r.account, r.order = a, l.started
	h := a.kinds[r.Kind]
	if h == nil {
		h = &runs{limit: l.limit}
		a.kinds[r.Kind] = h
		if l.kinds[r.Kind] == nil {
			l.kinds[r.Kind] = map[*account]*runs{}
		}
		l.kinds[r.Kind][a] = h
	}
	h.push(r)
	a.used += r.Cost
	return l.crossed(a, a.used-r.Cost)
}

// End undoes Start, and removes the mark.
func (l *Ledger) End(r *Run) (changed bool) {
	l.Unmark(r)
	a := r.account
	h := a.kinds[r.Kind]
	h.remove(r)
	if len(h.list) == 0 {
		delete(a.kinds, r.Kind)
		delete(l.kinds[r.Kind], a)
		if len(l.kinds[r.Kind]) == 0 {
			delete(l.kinds, r.Kind)
		}
	}
	a.used -= r.Cost
	changed = l.crossed(a, a.used+r.Cost)
	r.account = nil
	l.tidy(a)
	return changed
}

// crossed reports whether the Standing may have changed for some cost since the use was so much.
func (l *Ledger) crossed(a *account, before int64) bool {
	q := a.quota
	if (a.used < q.Min) != (before < q.Min) {
		return true
	}
	return q.Max > 0 && max(a.used, before)+l.largest > q.Max
}
