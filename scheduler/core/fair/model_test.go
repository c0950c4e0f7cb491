package fair

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// A model does what a Tree does by looking at everything each time. A branch is the
// text of its path, "/a/b"; the root is "".
type model struct {
	levels  []Level
	limit   map[string]int64 // running work of branches of the first level; none: no limit
	reserve map[string]int64 // below it such a branch goes first
	items   []*modelItem
	workers []*modelWorker

	// The state of each branch while it exists, and the kinds in which it is open.
	served, clock map[string]float64
	order         map[string]int
	made          int
	open          map[string]bool
	// idleSince orders the branches, by kind, that have an idle worker in them or below.
	idleSince map[kindOf]int
	idled     int
}

type kindOf struct {
	branch string
	kind   uint32
}

type modelItem struct {
	stage   stage
	kind    uint32
	cost    int64
	worker  *modelWorker
	entries []*modelEntry
	avoids  string
}

type modelEntry struct {
	Rank
	leaf     string
	returned bool
	parked   bool
}

type modelWorker struct {
	kind  uint32
	home  string
	since [MaxLevels]time.Time
	kept  [MaxLevels]bool
	next  *modelItem
	idle  int // order; 0 is not idle
}

func newModel(levels []Level) *model {
	return &model{
		levels: levels, limit: map[string]int64{}, reserve: map[string]int64{},
		served: map[string]float64{}, clock: map[string]float64{}, order: map[string]int{},
		open: map[string]bool{}, idleSince: map[kindOf]int{},
	}
}

func depthOf(b string) int { return strings.Count(b, "/") }

func parentOf(b string) string { return b[:max(0, strings.LastIndexByte(b, '/'))] }

func keyOf(b string) string { return b[strings.LastIndexByte(b, '/')+1:] }

// above returns b and its ancestors, without the root, the lowest first.
func above(b string) (all []string) {
	for ; b != ""; b = parentOf(b) {
		all = append(all, b)
	}
	return all
}

func isBelow(b, top string) bool { return b == top || strings.HasPrefix(b, top+"/") }

func commonOf(a, b string) string {
	for !isBelow(b, a) {
		a = parentOf(a)
	}
	return a
}

func (m *model) weight(b string) float64 {
	if w, ok := m.levels[depthOf(b)-1].Weights[keyOf(b)]; ok {
		return w
	}
	return 1
}

func (m *model) running(b string) (sum int64) {
	for _, it := range m.items {
		if it.stage == running && slices.ContainsFunc(it.entries, func(e *modelEntry) bool { return isBelow(e.leaf, b) }) {
			sum += it.cost
		}
	}
	return sum
}

// best returns the best priority that waits below b in a kind.
func (m *model) best(b string, kind uint32) (best int32, some bool) {
	for _, it := range m.items {
		for _, e := range it.entries {
			if it.stage == waiting && !e.parked && it.kind == kind && isBelow(e.leaf, b) && (!some || e.Priority < best) {
				best, some = e.Priority, true
			}
		}
	}
	return best, some
}

func (m *model) factor(b string, kind uint32) float64 {
	best, _ := m.best(b, kind)
	p := math.Max(-2000, math.Min(2000, float64(best)))
	return math.Exp2(p/100) / m.weight(b)
}

func (m *model) grade(key string) Grade {
	n := m.running("/" + key)
	if limit, ok := m.limit[key]; ok && n >= limit {
		return Wait
	}
	if n < m.reserve[key] {
		return First
	}
	return Share
}

// mayRun reports whether something waits below b that is not held.
func (m *model) mayRun(b string, kind uint32) bool {
	_, some := m.best(b, kind)
	return some && (depthOf(b) > 1 || m.grade(keyOf(b)) != Wait)
}

// children returns the branches right below b that may have something start.
func (m *model) children(b string, kind uint32) (all []string) {
	for child := range m.order {
		if parentOf(child) == b && m.mayRun(child, kind) {
			all = append(all, child)
		}
	}
	return all
}

// turn returns the child of b whose turn it is; "" if there is none.
func (m *model) turn(b string, kind uint32) string {
	children := m.children(b, kind)
	if len(children) == 0 {
		return ""
	}
	return slices.MinFunc(children, m.byTurn(kind))
}

// byTurn compares branches of one parent.
func (m *model) byTurn(kind uint32) func(x, y string) int {
	return func(x, y string) int {
		return cmp.Or(
			-cmp.Compare(m.gradeOf(x), m.gradeOf(y)),
			cmp.Compare(float64(m.running(x))*m.factor(x, kind), float64(m.running(y))*m.factor(y, kind)),
			cmp.Compare(m.served[x], m.served[y]),
			cmp.Compare(m.order[x], m.order[y]),
		)
	}
}

// find returns the first item below b, in the order of turns, that does not avoid a group.
func (m *model) find(b string, kind uint32, group string) (first *modelItem) {
	for _, child := range slices.SortedFunc(slices.Values(m.children(b, kind)), m.byTurn(kind)) {
		if it := m.find(child, kind, group); it != nil {
			return it
		}
	}
	var soonest *modelEntry
	for _, it := range m.items {
		for _, e := range it.entries {
			if it.stage == waiting && !e.parked && it.kind == kind && e.leaf == b && it.avoids != group &&
				(soonest == nil || e.sooner(soonest)) {
				first, soonest = it, e
			}
		}
	}
	return first
}

func (m *model) gradeOf(b string) Grade {
	if depthOf(b) > 1 {
		return Share
	}
	return m.grade(keyOf(b))
}

// next returns what a worker is to run.
func (m *model) next(s *modelWorker, now time.Time) *modelItem {
	s.next, s.kept = nil, [MaxLevels]bool{}
	at := ""
	for depth, level := range m.levels {
		turn := m.turn(at, s.kind)
		if turn == "" {
			return nil
		}
		own := ""
		if isBelow(s.home, at) && depthOf(s.home) > depth {
			all := above(s.home)
			own = all[len(all)-1-depth]
		}
		if own != "" && own != turn && m.mayRun(own, s.kind) && m.gradeOf(own) == m.gradeOf(turn) && now.Sub(s.since[depth]) < level.Stickiness {
			turn, s.kept[depth] = own, true
		}
		at = turn
	}
	var first *modelEntry
	for _, it := range m.items {
		for _, e := range it.entries {
			if it.stage == waiting && !e.parked && it.kind == s.kind && e.leaf == at && (first == nil || e.sooner(first)) {
				first, s.next = e, it
			}
		}
	}
	return s.next
}

func (e *modelEntry) sooner(f *modelEntry) bool {
	back := func(e *modelEntry) int {
		if e.returned {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(e.Priority, f.Priority),
		cmp.Compare(back(e), back(f)),
		-cmp.Compare(e.Expected, f.Expected),
		cmp.Compare(e.Age, f.Age),
	) < 0
}

// start starts an item on a worker.
func (m *model) start(it *modelItem, s *modelWorker, now time.Time, cost int64) {
	paid, clock := map[string]bool{}, maps.Clone(m.clock)
	for _, e := range it.entries {
		for _, b := range above(e.leaf) {
			if paid[b] || it.stage != waiting || e.parked {
				continue
			}
			paid[b] = true
			at := max(m.clock[parentOf(b)], m.served[b])
			clock[parentOf(b)] = max(clock[parentOf(b)], at)
			m.served[b] = at + float64(cost)/m.weight(b)
			m.made++
			m.order[b] = m.made
		}
	}
	m.clock = clock
	it.stage, it.cost, it.worker = running, cost, s
	if len(it.entries) == 0 {
		return
	}
	home := it.entries[0].leaf
	for _, e := range it.entries {
		home = commonOf(home, e.leaf)
	}
	s.home = home
	for depth := range s.since {
		if s.next != it || !s.kept[depth] {
			s.since[depth] = now
		}
	}
	s.next = nil
}

// join adds an entry to an item.
func (m *model) join(e *modelEntry, it *modelItem) {
	all := above(e.leaf)
	slices.Reverse(all)
	for _, b := range all {
		if m.order[b] == 0 {
			m.made++
			m.order[b] = m.made
		}
	}
	it.entries = append(it.entries, e)
	if s := it.worker; s != nil && it.stage == running {
		if len(it.entries) == 1 {
			s.home = e.leaf
		} else {
			s.home = commonOf(s.home, e.leaf)
		}
	}
}

// settle forgets branches without use and opens branches that have waiting items now.
func (m *model) settle() {
	for b := range m.order {
		used := slices.ContainsFunc(m.workers, func(s *modelWorker) bool { return isBelow(s.home, b) }) ||
			slices.ContainsFunc(m.items, func(it *modelItem) bool {
				return slices.ContainsFunc(it.entries, func(e *modelEntry) bool { return isBelow(e.leaf, b) })
			})
		if !used {
			m.clock[parentOf(b)] = max(m.clock[parentOf(b)], m.served[b])
			delete(m.order, b)
			delete(m.served, b)
			delete(m.open, b)
		}
	}
	maps.DeleteFunc(m.clock, func(b string, _ float64) bool { return b != "" && m.order[b] == 0 })
	for b := range m.order {
		_, one := m.best(b, 1)
		_, two := m.best(b, 2)
		now := one || two
		if now && !m.open[b] {
			m.served[b] = max(m.served[b], m.clock[parentOf(b)])
		}
		m.open[b] = now
	}
}

// wait and unwait make a worker idle or not.
func (m *model) wait(s *modelWorker) {
	m.idled++
	s.idle = m.idled
	for _, b := range append(above(s.home), "") {
		if m.idleSince[kindOf{b, s.kind}] == 0 {
			m.idleSince[kindOf{b, s.kind}] = m.idled
		}
	}
}

func (m *model) unwait(s *modelWorker) {
	s.idle = 0
	for _, b := range append(above(s.home), "") {
		if !slices.ContainsFunc(m.workers, func(o *modelWorker) bool {
			return o.idle > 0 && o.kind == s.kind && isBelow(o.home, b)
		}) {
			delete(m.idleSince, kindOf{b, s.kind})
		}
	}
}

// nearest returns the idle worker nearest to an item.
func (m *model) nearest(it *modelItem, kind uint32) *modelWorker {
	near, some := "", false
	for _, e := range it.entries {
		for _, s := range m.workers {
			if s.idle == 0 || s.kind != kind {
				continue
			}
			if c := commonOf(s.home, e.leaf); !some || depthOf(c) > depthOf(near) {
				near, some = c, true
			}
		}
	}
	if !some {
		return nil
	}
	for {
		var here *modelWorker
		var child string
		for _, s := range m.workers {
			if s.idle == 0 || s.kind != kind || !isBelow(s.home, near) {
				continue
			}
			if s.home == near {
				if here == nil || s.idle < here.idle {
					here = s
				}
				continue
			}
			all := above(s.home)
			c := all[len(all)-1-depthOf(near)]
			if child == "" || m.idleSince[kindOf{c, kind}] < m.idleSince[kindOf{child, kind}] {
				child = c
			}
		}
		if here != nil {
			return here
		}
		near = child
	}
}
