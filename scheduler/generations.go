package scheduler

// generations remembers the values by key that were put last, in two generations that each have a bound. The
// zero value is ready; it has no lock.
type generations[K comparable, V any] struct{ young, old map[K]V }

// get returns what was put last for k, if that is remembered.
func (g *generations[K, V]) get(k K) (V, bool) {
	v, ok := g.young[k]
	if !ok {
		v, ok = g.old[k]
	}
	return v, ok
}

// put remembers v for k. When the young generation has as many as it may, it becomes the old one, and
// what was old is forgotten.
func (g *generations[K, V]) put(k K, v V, most int) {
	if _, known := g.young[k]; g.young == nil || len(g.young) >= most && !known {
		g.old, g.young = g.young, map[K]V{}
	}
	g.young[k] = v
}
