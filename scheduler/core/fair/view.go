package fair

import (
	"cmp"
	"iter"
	"slices"
)

// A View is the state of one branch for one kind of workers.
type View struct {
	// Depth is 0 for the root, which has no Key, 1 for branches of the first level.
	Depth int
	Key   string
	// Queued is the number of operations that wait below. Running is the sum of the costs of
	// running items, of all kinds; it is 0 for the root. Idle is the number of idle workers that
	// belong to the branch.
	Queued  int
	Running int64
	Idle    int
	// Due is the branch's share among its siblings: its weight, multiplied by the factor of the
	// best waiting priority if operations wait there. 0 for the root.
	Due float64
	// Best is the best waiting priority. The branch with the lowest Score has the next turn. Both
	// are meaningless if nothing waits.
	Best  int32
	Score float64
	// Held: the branch may not start anything (Options.Admit).
	Held bool
}

// Idle returns the number of idle workers of a kind.
func (t *Tree) Idle(kind uint32) int {
	if s := t.root.backlog(kind); s != nil {
		return s.idle
	}
	return 0
}

// Branches yields the root and all branches, each after its parent, siblings in the order of their
// keys. It visits the whole tree, which must not change meanwhile.
func (t *Tree) Branches(kind uint32) iter.Seq[View] {
	return func(yield func(View) bool) { t.Root(kind).views(yield) }
}

func (n Node) views(yield func(View) bool) bool {
	if !yield(n.View()) {
		return false
	}
	byKey := func(x, y Node) int { return cmp.Compare(x.branch.key, y.branch.key) }
	for _, child := range slices.SortedFunc(n.Children(), byKey) {
		if !child.views(yield) {
			return false
		}
	}
	return true
}

// A Node is a read-only branch in one kind, valid as long as the tree does not change.
type Node struct {
	branch *branch
	kind   uint32
}

// Root returns the topmost branch.
func (t *Tree) Root(kind uint32) Node {
	t.refresh()
	return Node{t.root, kind}
}

// Children yields the direct children, in any order.
func (n Node) Children() iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for _, child := range n.branch.children {
			if !yield(Node{child, n.kind}) {
				return
			}
		}
	}
}

// View returns the state of a branch.
func (n Node) View() View {
	b := n.branch
	v := View{Depth: b.depth, Key: b.key, Running: b.running}
	if b.parent != nil {
		v.Due = b.weight
	}
	if s := b.backlog(n.kind); s != nil {
		v.Queued, v.Idle, v.Best, v.Score = s.queued, s.idle, s.best, s.score
		if s.queued > 0 && b.parent != nil {
			v.Due = 1 / s.factor
		}
		v.Held = s.rank > 0 && s.turn == 0
	}
	return v
}

func (s *backlog) all(entries []*Entry) []*Entry {
	for _, key := range s.some(s.queued, "") {
		entries = append(entries, key.entry)
	}
	for _, child := range s.byBest.entries {
		entries = child.backlog.all(entries)
	}
	return entries
}
