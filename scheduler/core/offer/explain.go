package offer

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// explainAtMost bounds how many alternatives an explanation lists.
const explainAtMost = 5

// A Staffed is a pool and the number of its workers that take work.
type Staffed struct {
	Offer
	Workers int
}

// Lack explains why none of the pools, of which there must be at least one, fits an operation: it
// names the first property that none has, and the existing ones. For pools with exact matching it
// says so.
func Lack(spec *request.Operation, pools []Staffed) string {
	var here []Staffed
	for _, p := range pools {
		if instance.Below(spec.Instance, p.Prefix) {
			here = append(here, p)
		}
	}
	if len(here) == 0 {
		return fmt.Sprintf("no worker serves instance name %q; connected workers serve %s",
			spec.Instance, census(pools, func(p Staffed) []string { return []string{strconv.Quote(p.Prefix)} }))
	}
	missing := lacking(here, spec.Platform)
	switch {
	case len(missing) > 0 && len(missing) < len(spec.Platform.Properties()):
		missing = append(missing, nearest(here, spec.Platform))
		fallthrough
	case len(missing) > 0:
		return strings.Join(missing, "; ")
	}
	what := "all of"
	if here[0].Exact {
		what = "exactly"
	}
	return fmt.Sprintf("no worker has %s %s; connected workers have %s; %s", what, spec.Platform,
		census(here, func(p Staffed) []string { return []string{p.Platform.String()} }), nearest(here, spec.Platform))
}

// lacking says which properties none of the pools has, and which they have instead.
func lacking(here []Staffed, asked request.Platform) (missing []string) {
	for _, want := range slices.Compact(asked.Properties()) {
		if slices.ContainsFunc(here, func(p Staffed) bool { return !slices.Contains(first(p.differs(asked)), want) }) {
			continue
		}
		have := census(here, func(p Staffed) []string { return slices.Compact(p.named(want.Name)) })
		if have == "" {
			have = "no property " + strconv.Quote(want.Name)
		}
		missing = append(missing, fmt.Sprintf("no worker has %s; connected workers have %s", want, have))
	}
	return missing
}

func first(a, _ []request.Property) []request.Property { return a }

// nearest says which workers differ in the fewest properties, and in which.
func nearest(pools []Staffed, want request.Platform) string {
	var best *Staffed
	var lack, more []request.Property
	for i := range pools {
		p := &pools[i]
		l, m := p.differs(want)
		if best == nil || len(l)+len(m) < len(lack)+len(more) ||
			len(l)+len(m) == len(lack)+len(more) && p.Workers > best.Workers {
			best, lack, more = p, l, m
		}
	}
	text := fmt.Sprintf("nearest are %d with %s", best.Workers, best.Platform)
	if len(lack) > 0 {
		text += ", which lack " + join(lack)
	}
	if len(more) > 0 {
		text += ", for which the action would have to ask for " + join(more)
	}
	return text
}

func join(ps []request.Property) string {
	texts := make([]string, len(ps))
	for i, p := range ps {
		texts[i] = p.String()
	}
	return strings.Join(texts, " and ")
}

// census lists the properties of pools, most frequent first, with the number of workers that have
// each; "" if there are none.
func census(pools []Staffed, has func(Staffed) []string) string {
	workers := map[string]int{}
	for _, p := range pools {
		for _, v := range has(p) {
			workers[v] += p.Workers
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
