package fair

// mostLooks bounds the branches and items that Find looks at, mostInLeaf the items of one leaf: behind what does not fit others wait.
const mostLooks, mostInLeaf = 100, 25

// Find returns the item that a worker that belongs to no branch would be the first to run of a kind, if only what fits of branches of the
// first level that may have more running were there. It is nil if there is none, as far as it looks.
func (t *Tree) Find(kind uint32, may func(key string) bool, fits func(*Item) bool) *Item {
	s := t.root.backlog(kind)
	if s == nil {
		return nil
	}
	f := finder{left: mostLooks, may: may, fits: fits}
	return f.below(s)
}

// A finder goes through what waits in the order of turns.
type finder struct {
	left int
	may  func(string) bool
	fits func(*Item) bool
}

func (f *finder) below(s *backlog) *Item {
	if it := f.here(s); it != nil {
		return it
	}
	for x := range s.byTurn.inOrder() {
		if f.left <= 0 {
			return nil
		}
		f.left--
		if s.up == nil && !f.may(x.backlog.branch.key) {
			continue
		}
		if it := f.below(x.backlog); it != nil {
			return it
		}
	}
	return nil
}

// here looks through a leaf.
func (f *finder) here(s *backlog) *Item {
	here := 0
	for _, chunk := range s.entries.chunks {
		for _, e := range chunk {
			if f.left <= 0 || here == mostInLeaf {
				return nil
			}
			f.left--
			here++
			if it := e.entry.item; f.fits(it) {
				return it
			}
		}
	}
	return nil
}
