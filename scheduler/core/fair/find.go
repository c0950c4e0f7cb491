package fair

// mostLooks limits the branches and items that Find looks at, mostInLeaf the items of one leaf, so
// that items that do not fit cannot hide those of other branches. mostBranches limits the branches
// if all items fit that do not avoid the worker: then each branch knows whether it has one.
const mostLooks, mostInLeaf, mostBranches = 100, 25, 1000

// A Search says which items Find may find. The zero Search is for all.
type Search struct {
	// For is a group of workers: no items that avoid it.
	For string
	// May reports whether the items of a branch of the first level may be found; nil: all may.
	May func(key string) bool
	// Fits reports whether an item may be found; nil: all may.
	Fits func(*Item) bool
}

// Find returns the item of a kind that a worker without a branch would get if only those waited that
// may be found. It is nil if there is none, or none among the first mostLooks branches and items,
// or mostBranches if Fits is nil. looks is the number of branches and items that it looked at.
func (t *Tree) Find(kind uint32, x Search) (first *Item, looks int) {
	t.refresh()
	return t.find(t.root.backlog(kind), x)
}

// FindOf is Find for items below the branch of the first level with a key.
func (t *Tree) FindOf(kind uint32, key string, x Search) (first *Item, looks int) {
	return t.find(t.startable(kind, key), x)
}

// find is Find below a backlog, if it is not nil.
func (t *Tree) find(s *backlog, x Search) (first *Item, looks int) {
	if s == nil {
		return nil, 0
	}
	most := mostLooks
	if x.Fits == nil {
		most = mostBranches
	}
	f := finder{Search: x, left: most}
	first = f.below(s)
	return first, most - f.left
}

// A finder goes through waiting items in the order of turns.
type finder struct {
	Search
	left int
}

func (f *finder) below(s *backlog) *Item {
	if f.left <= 0 {
		return nil
	}
	if f.left--; !s.has(f.For) {
		return nil
	}
	for child := range s.byTurn.inOrder() {
		if s.up == nil && f.May != nil && !f.May(child.branch.key) {
			if f.left--; f.left <= 0 {
				return nil
			}
			continue
		}
		if it := f.below(child); it != nil {
			return it
		}
		if f.left <= 0 {
			return nil
		}
	}
	return f.here(s)
}

// here looks through a leaf.
func (f *finder) here(s *backlog) *Item {
	if f.Fits == nil {
		if first := s.first(f.For); first != nil {
			return first.entry.item
		}
		return nil
	}
	for _, key := range s.some(min(f.left, mostInLeaf), f.For) {
		f.left--
		if it := key.entry.item; f.Fits(it) {
			return it
		}
	}
	return nil
}
