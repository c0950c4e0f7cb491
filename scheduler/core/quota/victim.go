package quota

// Victim returns the run of a kind to stop for an instance below its minimum; nil if none may be
// stopped.
func (l *Ledger) Victim(kind any) *Run {
	var best *account
	var victim *Run
	for a, h := range l.kinds[kind] {
		r := h.list[0]
		if h.class(r) != open || a.surplus() < r.Cost {
			continue
		}
		if best == nil || a.surplus() > best.surplus() || a.surplus() == best.surplus() && a.instance < best.instance {
			best, victim = a, r
		}
	}
	return victim
}

// Open reports whether Victim may return a run if there is no better one.
func (l *Ledger) Open(r *Run) bool {
	a := r.account
	return a.kinds[r.Kind].class(r) == open && a.surplus() >= r.Cost
}

// surplus is how much an account will be over its minimum once the marked runs have ended.
func (a *account) surplus() int64 { return a.used - a.marked - a.quota.Min }

// OverMax returns the run to stop to bring an instance down to its maximum; nil if it is not above,
// or if no more may be stopped. It ignores how often the run was stopped before.
func (l *Ledger) OverMax(instance string) *Run {
	a := l.accounts[instance]
	if a == nil || a.quota.Max == 0 || a.used-a.marked <= a.quota.Max {
		return nil
	}
	var best *Run
	for _, h := range a.kinds {
		if r := h.list[0]; h.class(r) != closed && (best == nil || h.before(r, best)) {
			best = r
		}
	}
	return best
}

// Mark marks a run to be stopped for the maximum of its own instance.
func (l *Ledger) Mark(r *Run) {
	l.Unmark(r)
	r.marked = true
	r.account.marked += r.Cost
	l.Fix(r)
}

// MarkFor marks a run to be stopped for the minimum of another instance.
func (l *Ledger) MarkFor(r *Run, instance string) {
	l.Mark(r)
	r.forWho = l.account(instance)
	r.forWho.promised += r.Cost
}

// Unmark undoes Mark and MarkFor. Nothing happens if the run is not marked.
func (l *Ledger) Unmark(r *Run) {
	if !r.marked {
		return
	}
	r.marked = false
	r.account.marked -= r.Cost
	if who := r.forWho; who != nil {
		r.forWho = nil
		who.promised -= r.Cost
		l.tidy(who)
	}
	l.Fix(r)
}

// Marked reports whether a run is marked.
func (r *Run) Marked() bool { return r.marked }

// Deserved reports whether the reason for a run's mark still holds.
func (l *Ledger) Deserved(r *Run) bool {
	a, who := r.account, r.forWho
	switch {
	case !r.marked || r.Shielded:
		return false
	case who == nil:
		return a.quota.Max > 0 && a.used > a.quota.Max
	}
	return who.used+who.promised-r.Cost < who.quota.Min && a.used-r.Cost >= a.quota.Min
}

// Fix reorders a run whose fields have changed.
func (l *Ledger) Fix(r *Run) {
	r.account.kinds[r.Kind].fix(r)
}
