package fetch

import "github.com/forerunner-build/forerunner/cas/span"

const (
	// maxHints limits the streams of all arrivals of a Group that fetch predicted parts, one part
	// each. The same limit holds for the streams of one arrival that run or wait. A client.Client
	// allows as many low-priority calls as these plus those of prefetching.
	maxHints = 8
	// fewStrange is the number of unpredicted reads that have no consequence.
	fewStrange = 8
)

// foreseen has the parts that readers of an arrival are expected to read. It is a hint: its
// failures have no consequence, and it is dropped when most reads are elsewhere. The arrival's mu
// guards it.
type foreseen struct {
	parts        span.Set
	queued       []span.Span // parts without a stream; the next one first
	apt, strange int         // reads inside and outside of parts
}

// foresee fetches parts before all bytes for which no caller waits.
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

// readLocked records that a caller reads w.
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

// take removes and returns the rest of the part with the byte at, for which a caller waits.
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

// planForeseenLocked opens streams for predicted parts, up to the limit.
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

// hintsLocked returns the number of streams that fetch predicted parts for which no caller waits.
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
		if !s.state.stopped() && s.purpose != forRest && (s.purpose == forHint || !s.toEnd()) {
			return true
		}
	}
	return false
}
