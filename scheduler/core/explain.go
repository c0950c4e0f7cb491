package core

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/forerunner-build/forerunner/cas/instance"

	"github.com/forerunner-build/forerunner/scheduler/core/fair"
	"github.com/forerunner-build/forerunner/scheduler/core/levels"
	"github.com/forerunner-build/forerunner/scheduler/core/request"
)

// explainAtMost bounds how many alternatives an explanation lists.
const explainAtMost = 5

// explain says why no worker can serve an operation: the first thing that none
// has, and what there is instead.
func (d *dispatcher) explain(spec *request.Operation) string {
	pools := slices.DeleteFunc(d.pools.sorted(), func(p *pool) bool { return p.serving() == 0 })
	if len(pools) == 0 {
		if slices.ContainsFunc(d.pools.sorted(), (*pool).hasWorkers) {
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
			return p.cohort.WhyNever(levels.Bounded(spec.Instance), p.smallest(0, (*queue).served).class)
		}
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
	if d.cfg.Match == MatchExact {
		what = "exactly"
	}
	return fmt.Sprintf("no worker has %s %s; connected workers have %s; %s", what, spec.Platform,
		census(here, func(p *pool) []string { return []string{p.platform.String()} }), nearest(here, spec.Platform))
}

// lacking says which properties none of the pools has, and what they have instead.
func lacking(here []*pool, asked request.Platform) (missing []string) {
	for _, want := range slices.Compact(asked.Properties()) {
		if slices.ContainsFunc(here, func(p *pool) bool { return !slices.Contains(first(p.differs(asked)), want) }) {
			continue
		}
		have := census(here, func(p *pool) []string { return slices.Compact(p.named(want.Name)) })
		if have == "" {
			have = "no property " + strconv.Quote(want.Name)
		}
		missing = append(missing, fmt.Sprintf("no worker has %s; connected workers have %s", want, have))
	}
	return missing
}

// named returns the properties of a name that count, as text.
func (p *pool) named(name string) []string {
	if p.exact {
		return request.NewPlatform(p.platform.Proto()).Named(name)
	}
	return p.platform.Named(name)
}

func first(a, _ []request.Property) []request.Property { return a }

// differs returns what the pool's workers lack to run an action, and what the action does not ask for although they
// have to be asked for it.
func (p *pool) differs(asked request.Platform) (lack, more []request.Property) {
	if !p.exact {
		return p.platform.Lacks(asked), p.platform.Refuses(asked)
	}
	return asked.Without(p.platform), p.platform.Without(asked)
}

// nearest says which workers differ in the fewest properties, and in which.
func nearest(pools []*pool, want request.Platform) string {
	var best *pool
	var lack, more []request.Property
	for _, p := range pools {
		l, m := p.differs(want)
		if best == nil || len(l)+len(m) < len(lack)+len(more) ||
			len(l)+len(m) == len(lack)+len(more) && p.serving() > best.serving() {
			best, lack, more = p, l, m
		}
	}
	text := fmt.Sprintf("nearest are %d with %s", best.serving(), best.platform)
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

// allHeld is why nothing of a queue may start although something waits.
const allHeld = "each instance name that waits here is at its maximum"

// WaitsFor says for what an operation waits, and behind whom; empty if it does not wait. It looks
// at every worker.
func (s *View) WaitsFor(name string) string {
	o, ok := s.operations.byName[name]
	if !ok || o.task == nil || o.task.worker() != nil {
		return ""
	}
	t := o.task
	q := t.queue()
	if q == nil {
		return s.dispatch.explain(t.spec)
	}
	if !t.wanted() {
		return fmt.Sprintf("nobody waits for it: it keeps its place until its client is back, for %s at most", s.cfg.ClientGrace)
	}
	if instance := levels.Bounded(t.spec.Instance); q.quotas.Grade(instance) == fair.Wait {
		return q.pool.cohort.WhyHeld(instance, q.class)
	}
	idle := 0
	for _, w := range s.workers.byKey {
		if w.queue == q && w.busy() == (action{}) && w.takes == serving {
			idle++
		}
	}
	why := s.whyWaits(q, idle) + s.dispatch.otherClasses(q, t)
	if first := q.head(s.Now); first != nil && first != t {
		why += fmt.Sprintf("; next of the %d that wait is %s", q.waiting, first.spec.Describe())
	}
	return why
}

// whyWaits says for what the first action of a queue waits; idle is how many of its workers that
// take work have none.
func (s *View) whyWaits(q *queue, idle int) string {
	if s.dispatch.isSettling() {
		return fmt.Sprintf("the scheduler has just started; for another %s workers may come back with what they run",
			s.Timers.When(&s.dispatch.settle).Sub(s.Now).Round(time.Second))
	}
	if q.away && q.drained > 0 {
		return fmt.Sprintf("all %d workers are drained; its actions wait %s for one to be undrained", q.drained, q.patience(&s.cfg))
	}
	if q.away {
		return fmt.Sprintf("size class %d is declared and has no worker; its actions wait %s for one to come, and then take another class",
			q.class, q.pool.patience)
	}
	why := fmt.Sprintf("all %d workers that take work are busy", q.serving)
	if idle > 0 {
		why = fmt.Sprintf("%d of %d workers that take work are between two calls, the others busy", idle, q.serving)
	}
	if q.serving == 0 {
		why = "no worker takes more work for the moment"
	}
	if q.drained > 0 {
		why += fmt.Sprintf("; %d more are drained", q.drained)
	}
	if q.suspended > 0 {
		why += fmt.Sprintf("; %d more are suspended, because their actions failed", q.suspended)
	}
	return why
}

// otherClasses says, of a task that waits, which workers of other size classes are idle, and why it does
// not go there. It is empty if there are none.
func (d *dispatcher) otherClasses(q *queue, t *task) string {
	smaller, larger := 0, 0
	for _, other := range q.pool.queues {
		idle := q.pool.tree.Idle(other.class)
		if other.class < q.class {
			smaller += idle
		} else if other != q {
			larger += idle
		}
	}
	text := ""
	if smaller > 0 {
		why := "actions start on the largest class unless their runs speak for another"
		if t.course.largest() {
			why = "it " + t.why
		} else if t.spec.Size.Reason != "" {
			why = t.spec.Size.Reason
		}
		text = fmt.Sprintf("; %d workers of smaller classes are idle, but it needs class %d: %s", smaller, q.class, why)
	}
	if to, next := q.largerFor(d.Now); next != nil {
		what, turns := q.spills(), q.turns(to, d.cfg)
		text += fmt.Sprintf("; %d workers of larger classes are idle: one of class %d is worth it once the next action has waited for %s, "+
			"or more than %.3g wait for each worker", larger, to.class, what.Patience(turns).Round(time.Second), turns)
	} else if larger > 0 {
		text += fmt.Sprintf("; %d workers of larger classes are idle, of which what waits may have none by its maximum", larger)
	}
	return text
}

// behind says whose actions run, if there is somebody who has most of the workers.
func (b Branch) behind() string {
	all := 0
	for _, child := range b.Children {
		all += child.Running
	}
	var path []string
	running := 0
	for level := b.Children; ; {
		i := slices.IndexFunc(level, func(child Branch) bool { return 2*child.Running > all })
		if i < 0 || all == 0 {
			break
		}
		if level[i].Key != "" {
			path = append(path, level[i].Key)
		}
		running, level = level[i].Running, level[i].Children
	}
	if len(path) == 0 {
		return ""
	}
	return fmt.Sprintf("; %d %% of what runs is of %s", 100*running/all, strings.Join(path, " › "))
}
