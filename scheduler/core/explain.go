package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/forerunner-build/forerunner/cas/instance"
)

// explainAtMost bounds how many alternatives an explanation lists.
const explainAtMost = 5

// explain says why no worker can serve an operation: the first thing that none
// has, and what there is instead.
func (d *dispatcher) explain(spec *Operation) string {
	pools := slices.DeleteFunc(d.sortedPools(), func(p *pool) bool { return p.serving() == 0 })
	if len(pools) == 0 {
		if slices.ContainsFunc(d.sortedPools(), (*pool).hasWorkers) {
			return fmt.Sprintf("every connected worker is draining; the action asks for %s", spec.Platform)
		}
		return fmt.Sprintf("no worker is connected; the action asks for %s", spec.Platform)
	}
	var here []*pool
	for _, p := range pools {
		if instance.Below(spec.Instance, p.prefix) {
			here = append(here, p)
		}
	}
	if len(here) == 0 {
		return fmt.Sprintf("no worker serves instance name %q; connected workers serve %s",
			spec.Instance, census(pools, func(p *pool) []string { return []string{strconv.Quote(p.prefix)} }))
	}
	for _, p := range here {
		if p.serves(spec) && p.cohort != nil {
			return p.cohort.whyNoRoom(bounded(spec.Instance), p.smallest(0, (*queue).served).class)
		}
	}
	var missing []string
	for _, want := range slices.Compact(slices.Clone(spec.Platform.properties)) {
		if slices.ContainsFunc(here, func(p *pool) bool { return slices.Contains(p.platform.properties, want) }) {
			continue
		}
		have := census(here, func(p *pool) []string {
			var vs []string
			for _, q := range p.platform.properties {
				if q.name == want.name {
					vs = append(vs, q.String())
				}
			}
			return slices.Compact(vs)
		})
		if have == "" {
			have = "no property " + strconv.Quote(want.name)
		}
		missing = append(missing, fmt.Sprintf("no worker has %s; connected workers have %s", want, have))
	}
	switch {
	case len(missing) > 0 && len(missing) < len(spec.Platform.properties):
		missing = append(missing, nearest(here, spec.Platform))
		fallthrough
	case len(missing) > 0:
		return strings.Join(missing, "; ")
	}
	return fmt.Sprintf("no worker has exactly %s; connected workers have %s; %s", spec.Platform,
		census(here, func(p *pool) []string { return []string{p.platform.String()} }), nearest(here, spec.Platform))
}

// nearest says which workers differ in the fewest properties, and in which.
func nearest(pools []*pool, want Platform) string {
	var best *pool
	var lack, more []string
	for _, p := range pools {
		l, m := want.without(p.platform), p.platform.without(want)
		if best == nil || len(l)+len(m) < len(lack)+len(more) ||
			len(l)+len(m) == len(lack)+len(more) && p.serving() > best.serving() {
			best, lack, more = p, l, m
		}
	}
	text := fmt.Sprintf("nearest are %d with %s", best.serving(), best.platform)
	if len(lack) > 0 {
		text += ", which lack " + strings.Join(lack, " and ")
	}
	if len(more) > 0 {
		text += ", for which the action would have to ask for " + strings.Join(more, " and ")
	}
	return text
}

// without returns those of the properties that other has not.
func (p Platform) without(other Platform) (list []string) {
	for _, q := range p.properties {
		if !slices.Contains(other.properties, q) {
			list = append(list, q.String())
		}
	}
	return list
}

// census lists what the pools have, most frequent first, with the number of
// workers that have it; "" if none has anything.
func census(pools []*pool, has func(*pool) []string) string {
	workers := map[string]int{}
	for _, p := range pools {
		for _, v := range has(p) {
			workers[v] += p.serving()
		}
	}
	values := slices.SortedFunc(maps.Keys(workers), func(a, b string) int {
		return cmp.Or(cmp.Compare(workers[b], workers[a]), cmp.Compare(a, b))
	})
	rest := len(values) - explainAtMost
	values = values[:min(len(values), explainAtMost)]
	for i, v := range values {
		values[i] = fmt.Sprintf("%s (%d)", v, workers[v])
	}
	if rest > 0 {
		values = append(values, fmt.Sprintf("and %d more", rest))
	}
	return strings.Join(values, ", ")
}
