package bounded

import (
	"iter"
	"math"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
)

// A Cache keeps what was used last, within a bound of weight. The last entry stays, whatever it
// weighs. A Cache is not safe for concurrent use.
type Cache[K comparable, V any] struct {
	most, weight int64
	entries      *lru.LRU[K, *entry[V]]
}

type entry[V any] struct {
	value  V
	weight int64
}

// New returns an empty Cache of at most so much weight.
func New[K comparable, V any](most int64) *Cache[K, V] {
	entries, err := lru.NewLRU[K, *entry[V]](math.MaxInt, nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Cache[K, V]{most: most, entries: entries}
}

// Get returns what is under k, which counts as used; false if there is nothing.
func (c *Cache[K, V]) Get(k K) (value V, ok bool) {
	e, ok := c.entries.Get(k)
	if !ok {
		return value, false
	}
	return e.value, true
}

// Peek is Get, and k does not count as used.
func (c *Cache[K, V]) Peek(k K) (value V, ok bool) {
	e, ok := c.entries.Peek(k)
	if !ok {
		return value, false
	}
	return e.value, true
}

// Put sets what is under k, which counts as used, and drops what was not used for longest.
func (c *Cache[K, V]) Put(k K, value V, weight int64) {
	if old, ok := c.entries.Peek(k); ok {
		c.weight -= old.weight
	}
	c.entries.Add(k, &entry[V]{value, weight})
	c.weight += weight
	c.trim()
}

// Reweigh sets what k weighs, if it is there. It does not count as used.
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

// Values yields what there is, in any order. The Cache must not change meanwhile.
func (c *Cache[K, V]) Values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, e := range c.entries.Values() {
			if !yield(e.value) {
				return
			}
		}
	}
}

// Weight returns the sum of the weights.
func (c *Cache[K, V]) Weight() int64 { return c.weight }
