package fair

import (
	"fmt"
	"slices"
)

// check returns what is wrong with a tree; "" if nothing is. It is given all
// entries and workers there are.
func (t *Tree) check(entries []*Entry, workers []*Worker) string {
	refs := map[*branch]int{}
	runs := map[*branch]map[*Item]bool{}
	for _, e := range entries {
		if e.item == nil {
			continue
		}
		refs[e.leaf]++
		waits := false
		if s := e.leaf.backlog(e.item.kind); s != nil {
			r := &s.entries
			if group := t.avoids(e.item); group != "" && s.avoided[group] == nil {
				r = &ranking{}
			} else if group != "" {
				r = &s.avoided[group].here
			}
			waits = slices.Contains(slices.Collect(r.all()), e.sortKey())
		}
		if waits != (e.item.stage == waiting && !e.parked) {
			return fmt.Sprintf("entry %d at stage %d: in the ranking of its leaf: %t", e.age, e.item.stage, waits)
		}
		for b := e.leaf; b != nil && e.item.stage == running; b = b.parent {
			if runs[b] == nil {
				runs[b] = map[*Item]bool{}
			}
			runs[b][e.item] = true
		}
	}
	for _, s := range workers {
		if s.home != nil {
			refs[s.home]++
		}
	}
	return t.checkBranch(t.root, refs, runs)
}

func (t *Tree) checkBranch(b *branch, refs map[*branch]int, runs map[*branch]map[*Item]bool) string {
	name := fmt.Sprintf("branch %q at %d", b.key, b.depth)
	var sum int64
	for it := range runs[b] {
		sum += it.cost
	}
	switch {
	case b.refs != refs[b]:
		return fmt.Sprintf("%s: refs %d, want %d", name, b.refs, refs[b])
	case b != t.root && b.refs == 0 && len(b.children) == 0:
		return name + " is of no use"
	case b != t.root && b.running != sum:
		return fmt.Sprintf("%s: running %d, want %d", name, b.running, sum)
	}
	kinds := map[uint32]bool{}
	for _, s := range b.backlogs {
		if kinds[s.kind] || s.branch != b || s.queued == 0 && s.idle == 0 {
			return fmt.Sprintf("%s: odd backlog %d: %d queued, %d idle", name, s.kind, s.queued, s.idle)
		}
		kinds[s.kind] = true
		if problem := s.check(); problem != "" {
			return fmt.Sprintf("%s, kind %d: %s", name, s.kind, problem)
		}
	}
	for _, child := range b.children {
		if problem := t.checkBranch(child, refs, runs); problem != "" {
			return problem
		}
		for _, s := range child.backlogs {
			if s.up != b.backlog(s.kind) || s.up == nil {
				return name + ": a child's backlog is below no backlog"
			}
		}
	}
	return ""
}

func (s *backlog) check() string {
	queued, idle := s.entries.len(), 0
	avoided := map[string]int{}
	for group, of := range s.avoided {
		queued, avoided[group] = queued+of.here.len(), of.here.len()
		if problem := of.here.check(); problem != "" {
			return problem
		}
	}
	for x := s.workers.first; x != nil; x = x.next {
		idle++
	}
	for _, child := range s.branch.children {
		c := child.backlog(s.kind)
		if c == nil {
			continue
		}
		queued, idle = queued+c.queued, idle+c.idle
		for group, of := range c.avoided {
			avoided[group] += of.n
		}
		if (c.rank > 0) != (c.queued > 0) || (c.turn > 0) != (c.queued > 0 && c.grade != Wait) {
			return fmt.Sprintf("child %q: %d queued, rank %d, turn %d", child.key, c.queued, c.rank, c.turn)
		}
		if (c.beside.owner == c) != (c.idle > 0) {
			return fmt.Sprintf("child %q: %d idle, in the list: %t", child.key, c.idle, c.beside.owner == c)
		}
		if c.queued > 0 && (c.best != c.head() || c.score != float64(child.running)*share(c.best, child.weight)) {
			return fmt.Sprintf("child %q: best %d, score %v", child.key, c.best, c.score)
		}
	}
	if queued != s.queued || idle != s.idle {
		return fmt.Sprintf("counted %d queued and %d idle, there are %d and %d", s.queued, s.idle, queued, idle)
	}
	for group, of := range s.avoided {
		if of.n != avoided[group] || of.n == 0 {
			return fmt.Sprintf("counted %d that avoid %q, there are %d", of.n, group, avoided[group])
		}
		delete(avoided, group)
	}
	if len(avoided) > 0 {
		return fmt.Sprintf("not counted as avoiding somebody: %v", avoided)
	}
	slots := func(n int, slot func(i int) int32) bool {
		for i := range n {
			if slot(i) != int32(i+1) {
				return false
			}
		}
		return true
	}
	if !slots(len(s.byTurn.entries), func(i int) int32 { return s.byTurn.entries[i].backlog.turn }) ||
		!slots(len(s.byBest.entries), func(i int) int32 { return s.byBest.entries[i].backlog.rank }) {
		return "a slot is wrong"
	}
	for _, child := range s.byTurn.entries {
		if child != child.backlog.entryByTurn() {
			return fmt.Sprintf("child %q: its turn is out of date", child.backlog.branch.key)
		}
	}
	if problem := s.entries.check(); problem != "" {
		return problem
	}
	if !ordered(s.byTurn) || !ordered(s.byBest) {
		return "a heap is not in order"
	}
	return ""
}

func ordered(h heap) bool {
	for i := 1; i < len(h.entries); i++ {
		if h.entries[i].before(&h.entries[(i-1)/below]) {
			return false
		}
	}
	return true
}

func (r *ranking) check() string {
	all := slices.Collect(r.all())
	if len(all) != r.n {
		return fmt.Sprintf("a ranking of %d counts %d", len(all), r.n)
	}
	for i := 1; i < len(all); i++ {
		if !all[i-1].before(all[i]) {
			return "a ranking is not in order"
		}
	}
	for _, chunk := range r.chunks {
		if len(chunk) == 0 || len(chunk) > maxChunk {
			return fmt.Sprintf("a chunk has %d places", len(chunk))
		}
	}
	return ""
}
