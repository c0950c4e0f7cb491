package fair

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// A View is one branch as it is in one lane.
type View struct {
	// Depth is 0 for the root, which has no Key, 1 for branches of the first level.
	Depth int
	Key   string
	// Queued counts the operations that wait below, Running sums up the costs of
	// what runs (in all lanes; 0 for the root), Idle counts the workers that belong
	// there and are idle.
	Queued  int
	Running int64
	Idle    int
	// Due is what the branch is due against its siblings: its weight, and while something
	// waits there that times what the best priority makes of it. 0 for the root.
	Due float64
	// Best is the best priority that waits, Score what decides whose turn it is:
	// the lowest. Neither means anything when nothing waits.
	Best  int32
	Score float64
	// Held: the branch may not start anything (Options.Admit).
	Held bool
}

// Idle counts the workers of a lane that are idle.
func (t *Tree) Idle(lane uint32) int {
	if s := t.root.shelf(lane); s != nil {
		return s.idle
	}
	return 0
}

// Branches yields the root and all branches, each after its parent, siblings in the
// order of their keys. It looks at all of the tree, which must not change meanwhile.
func (t *Tree) Branches(lane uint32) iter.Seq[View] {
	return func(yield func(View) bool) { t.root.views(lane, yield) }
}

func (b *branch) views(lane uint32, yield func(View) bool) bool {
	v := View{Depth: b.depth, Key: b.key, Running: b.running}
	if b.parent != nil {
		v.Due = b.weight
	}
	if s := b.shelf(lane); s != nil {
		v.Queued, v.Idle, v.Best, v.Score = s.queued, s.idle, s.best, s.score
		if s.queued > 0 && b.parent != nil {
			v.Due = 1 / s.factor
		}
		v.Held = s.rank > 0 && s.turn == 0
	}
	if !yield(v) {
		return false
	}
	for _, child := range slices.SortedFunc(maps.Values(b.children), func(x, y *branch) int { return cmp.Compare(x.key, y.key) }) {
		if !child.views(lane, yield) {
			return false
		}
	}
	return true
}

// Items returns what waits in a lane, each item once, the oldest first.
func (t *Tree) Items(lane uint32) []*Item {
	var entries []*Entry
	if s := t.root.shelf(lane); s != nil {
		entries = s.all(nil)
	}
	slices.SortFunc(entries, func(a, b *Entry) int { return cmp.Compare(a.rank.Age, b.rank.Age) })
	items := make([]*Item, 0, len(entries))
	for _, e := range entries {
		if e.item.entries.first.owner == e {
			items = append(items, e.item)
		}
	}
	return items
}

func (s *shelf) all(entries []*Entry) []*Entry {
	for _, chunk := range s.entries.chunks {
		for _, p := range chunk {
			entries = append(entries, p.entry)
		}
	}
	for _, child := range s.byBest {
		entries = child.shelf.all(entries)
	}
	return entries
}
