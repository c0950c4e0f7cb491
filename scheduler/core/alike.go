package core

import (
	"cmp"
	"slices"

	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// mostAlike bounds the groups of a queue, and the programs of a group, at which one call of
// View.Circumstances looks.
const mostAlike = 64

// alike are the programs of a queue by the circumstances under which they run commands
// (event.Report). Programs without circumstances are in no group.
type alike struct {
	byName map[string]*likeness
	list   []*likeness // in any order
}

// A likeness is a group of programs with the same circumstances.
type likeness struct {
	circumstances string
	programs      map[*program]struct{}
	at            int // in alike.list
}

// runsUnder records the circumstances under which a program runs commands; empty: they are unknown.
func (p *program) runsUnder(circumstances string) {
	if p.circumstances == circumstances {
		return
	}
	p.queue.alike.remove(p)
	if p.circumstances = circumstances; circumstances != "" {
		p.queue.alike.add(p)
	}
}

func (a *alike) add(p *program) {
	l := a.byName[p.circumstances]
	if l == nil {
		l = &likeness{p.circumstances, map[*program]struct{}{}, len(a.list)}
		if a.byName == nil {
			a.byName = map[string]*likeness{}
		}
		a.byName[p.circumstances] = l
		a.list = append(a.list, l)
	}
	l.programs[p] = struct{}{}
}

func (a *alike) remove(p *program) {
	l := a.byName[p.circumstances]
	if l == nil {
		return
	}
	if delete(l.programs, p); len(l.programs) > 0 {
		return
	}
	last := a.list[len(a.list)-1]
	a.list[l.at], last.at = last, l.at
	a.list = slices.Delete(a.list, len(a.list)-1, len(a.list))
	delete(a.byName, p.circumstances)
}

// has reports whether a program is where it belongs.
func (a *alike) has(p *program) bool {
	l := a.byName[p.circumstances]
	if l == nil {
		return p.circumstances == ""
	}
	_, there := l.programs[p]
	return there && a.list[l.at] == l && len(a.byName) == len(a.list)
}

// serves reports whether a program of the group takes work.
func (l *likeness) serves() bool {
	looks := 0
	for p := range l.programs {
		if p.serving() > 0 {
			return true
		}
		if looks++; looks == mostAlike {
			break
		}
	}
	return false
}

// Circumstances returns circumstances under which workers that take work may run an operation
// (event.Report): at most so many, those of the most programs first.
func (s *View) Circumstances(spec *request.Operation, atMost int) (all []string) {
	q := s.dispatch.pools.match(spec, 0, false, nil)
	if q == nil {
		return nil
	}
	programs := map[string]int{}
	for _, other := range q.pool.queues {
		if !other.admits(spec.Instance) {
			continue
		}
		for _, l := range other.alike.list[:min(len(other.alike.list), mostAlike)] {
			if l.serves() {
				programs[l.circumstances] += len(l.programs)
			}
		}
	}
	for circumstances := range programs {
		all = append(all, circumstances)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(cmp.Compare(programs[b], programs[a]), cmp.Compare(a, b)) })
	return all[:min(len(all), atMost)]
}
