package bounded

import (
	"iter"
	"math"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
)

// A Cache keeps the most recently used entries within a limit of their total weight. It always
// keeps the last entry, whatever its weight. A Cache is not safe for concurrent use.
type Cache[K comparable, V any] struct {
	most, weight int64
	// The list is behind its interface, as every package that can reach a Cache would compile it.
	entries lru.LRUCache[K, *entry[V]]
}

type entry[V any] struct {
	value  V
	weight int64
}

// New returns an empty Cache with that maximum weight.
func New[K comparable, V any](most int64) *Cache[K, V] {
	entries, err := lru.NewLRU[K, *entry[V]](math.MaxInt, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Cache[K, V]{most: most, entries: entries}
}

// Get returns the value of k, and counts it as used; false if there is none.
func (c *Cache[K, V]) Get(k K) (value V, ok bool) {
	e, ok := c.entries.Get(k)
	if !ok {
		return value, false
	}
	return e.value, true
}

// Peek is Get, but does not count k as used.
func (c *Cache[K, V]) Peek(k K) (value V, ok bool) {
	e, ok := c.entries.Peek(k)
	if !ok {
		return value, false
	}
	return e.value, true
}

// Put sets the value of k, counts it as used, and removes the least recently used entries that are
// too many.
func (c *Cache[K, V]) Put(k K, v V, weight int64) {
	if e, ok := c.entries.Get(k); ok {
		c.weight -= e.weight
		*e = entry[V]{v, weight}
	} else {
		c.entries.Add(k, &entry[V]{v, weight})
	}
	c.weight += weight
	c.trim()
}

// Remove removes k, and returns its value; false if there is none.
func (c *Cache[K, V]) Remove(k K) (value V, ok bool) {
	e, ok := c.entries.Peek(k)
	if !ok {
		return value, false
	}
	c.entries.Remove(k)
	c.weight -= e.weight
	return e.value, true
}

// Reweigh sets the weight of k, if it is there, and does not count it as used.
func (c *Cache[K, V]) Reweigh(k K, weight int64) {
	if e, ok := c.entries.Peek(k); ok {
		c.weight += weight - e.weight
		e.weight = weight
		c.trim()
	}
}

func (c *Cache[K, V]) trim() {
	for c.weight > c.most && c.entries.Len() > 1 {
		_, last, _ := c.entries.RemoveOldest()
		c.weight -= last.weight
	}
}

// Values yields all values, in any order. The Cache must not change meanwhile.
func (c *Cache[K, V]) Values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, e := range c.entries.Values() {
			if !yield(e.value) {
				return
			}
		}
	}
}

// Weight returns the total weight.
func (c *Cache[K, V]) Weight() int64 { return c.weight }
