package fair

// mostLooks limits the branches and items that Find looks at, mostInLeaf the items of one leaf, so
// that items that do not fit cannot hide those of other branches.
const mostLooks, mostInLeaf = 100, 25

// Find returns the item of a kind that a worker without a branch would get if only fitting items
// waited, from branches of the first level that may run more. It is nil if none of the first
// mostLooks branches and items fits. looks is the number of branches and items that it looked at.
func (t *Tree) Find(kind uint32, may func(key string) bool, fits func(*Item) bool) (first *Item, looks int) {
	t.refresh()
	s := t.root.backlog(kind)
	if s == nil {
		return nil, 0
	}
	f := finder{left: mostLooks, may: may, fits: fits}
	first = f.below(s)
	return first, mostLooks - f.left
}

// A finder goes through waiting items in the order of turns.
type finder struct {
	left int
	may  func(string) bool
	fits func(*Item) bool
}

func (f *finder) below(s *backlog) *Item {
	if it := f.here(s); it != nil {
		return it
	}
	for child := range s.byTurn.inOrder() {
		if f.left <= 0 {
			return nil
		}
		f.left--
		if s.up == nil && !f.may(child.branch.key) {
			continue
		}
		if it := f.below(child); it != nil {
			return it
		}
	}
	return nil
}

// here looks through a leaf.
func (f *finder) here(s *backlog) *Item {
	here := 0
	for e := range s.entries.all() {
		if f.left <= 0 || here == mostInLeaf {
			return nil
		}
		f.left--
		here++
		if it := e.entry.item; f.fits(it) {
			return it
		}
	}
	return nil
}
