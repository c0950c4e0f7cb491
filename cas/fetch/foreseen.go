package fetch

import "github.com/forerunner-build/forerunner/cas/span"

const (
	// maxHints is how many streams of all arrivals of a Group bring what is foreseen, each a part.
	// As many of each arrival may run or wait for their place. A client.Client lets as many calls
	// stand behind as these and those of prefetching are.
	maxHints = 8
	// fewStrange reads of what was not foreseen are nothing to worry about.
	fewStrange = 8
)

// foreseen is what readers of an arrival will want, as far as is known. It is a hint: nothing fails
// because of it, and when most reads are of something else it is dropped. The arrival's mu guards
// it.
type foreseen struct {
	parts        span.Set
	queued       []span.Span // what no stream was opened for; the next one first
	apt, strange int         // reads of what is in parts, and of what is not
}

// foresee has parts come before all that nobody waits for.
func (a *arrival) foresee(parts []span.Span) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range parts {
		p.From, p.To = max(p.From, 0), min(p.To, a.digest.SizeBytes())
		if p.From < p.To {
			a.foreseen.parts.Add(p)
			a.foreseen.queued = append(a.foreseen.queued, p)
		}
	}
	a.changeLocked()
}

// readLocked notes that somebody reads w.
func (a *arrival) readLocked(w span.Span) {
	f := &a.foreseen
	if len(f.parts) == 0 {
		return
	}
	if f.parts.Has(w) {
		f.apt++
	} else if f.strange++; f.strange >= fewStrange && f.strange > f.apt {
		*f = foreseen{}
		a.changeLocked()
	}
}

// take returns what follows of the part that has the byte at, which somebody waits for.
func (f *foreseen) take(at int64) (part span.Span, ok bool) {
	part = span.Span{From: at, To: f.parts.End(at)}
	var left []span.Span
	for _, q := range f.queued {
		if before := min(q.To, part.From); q.From < before {
			left = append(left, span.Span{From: q.From, To: before})
		}
		if after := max(q.From, part.To); after < q.To {
			left = append(left, span.Span{From: after, To: q.To})
		}
	}
	f.queued = left
	return part, part.From < part.To
}

// planForeseenLocked has what is foreseen come, as far as the bound lets.
func (a *arrival) planForeseenLocked(p *plan) {
	for f := &a.foreseen; len(f.queued) > 0 && a.hintsLocked() < maxHints; {
		part := f.queued[0]
		f.queued = f.queued[1:]
		part.From = a.have.End(part.From)
		if part.From >= part.To {
			continue
		}
		end, near := a.have.Gap(part.From, part.To).To, a.nearestLocked(part.From, false)
		coming := near != nil && part.From-near.next <= streamReach && part.From < near.until
		if coming {
			end = min(end, near.until)
		}
		if end < part.To {
			f.queued = append([]span.Span{{From: end, To: part.To}}, f.queued...)
			part.To = end
		}
		if coming {
			continue
		}
		p.start = append(p.start, a.openForLocked(forHint, part, part.To))
	}
}

// hintsLocked returns how many streams bring what is foreseen and nobody waited for.
func (a *arrival) hintsLocked() (n int) {
	for _, s := range a.streams {
		if s.purpose == forHint {
			n++
		}
	}
	return n
}

// comingLocked reports whether something that is foreseen is still to come.
func (a *arrival) comingLocked() bool {
	if len(a.foreseen.queued) > 0 {
		return true
	}
	for _, s := range a.streams {
		if !s.state.stopped() && (s.purpose == forHint || !s.toEnd()) {
			return true
		}
	}
	return false
}
