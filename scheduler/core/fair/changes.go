package fair

// Changes records for which branches of the first level Admit may give another grade. All trees
// with the same Admit share it: each of them asks for these grades when it is used next. So a
// change costs the same however many trees there are. The zero Changes is empty.
type Changes struct {
	// latest counts the changes.
	latest uint64
	// byKey are the last ones of each key, order the same from the earliest to the latest.
	byKey map[string]*change
	order list[change]
}

// A change is the last one of a key.
type change struct {
	key    string
	at     uint64
	beside links[change]
}

// Note records that the grade of a key may be another one.
func (c *Changes) Note(key string) {
	x := c.byKey[key]
	if x == nil {
		if c.byKey == nil {
			c.byKey = map[string]*change{}
		}
		x = &change{key: key}
		c.byKey[key] = x
	} else {
		c.order.remove(&x.beside)
	}
	c.latest++
	x.at = c.latest
	c.order.pushBack(&x.beside, x)
}

// Forget drops a key of which nothing waits in any tree: a tree asks for the grade of what comes.
func (c *Changes) Forget(key string) {
	if x := c.byKey[key]; x != nil {
		c.order.remove(&x.beside)
		delete(c.byKey, key)
	}
}

// Len counts the keys.
func (c *Changes) Len() int { return len(c.byKey) }

// refresh asks for the grades that have changed since the last refresh. It looks at these keys, or
// at all branches if those are fewer.
func (t *Tree) refresh() {
	c, known, left := t.changes, t.known, len(t.root.children)
	if c == nil || known == c.latest {
		return
	}
	t.known = c.latest
	for x := c.order.last; x != nil && x.owner.at > known; x = x.prev {
		if left--; left < 0 {
			t.refreshAll(known)
			return
		}
		if b := t.root.children[x.owner.key]; b != nil {
			t.placeAll(b)
		}
	}
}

func (t *Tree) refreshAll(known uint64) {
	for key, b := range t.root.children {
		if x := t.changes.byKey[key]; x != nil && x.at > known {
			t.placeAll(b)
		}
	}
}
