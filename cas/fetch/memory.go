package fetch

import (
	"sync"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// keptOverhead is about the overhead of a memory for one value: a list element, its struct, and a
// place in the map.
const keptOverhead = 256

// A memory caches decoded blobs within a limit of bytes, and drops the least recently used first.
type memory[V interface{ Bytes() int }] struct {
	maxBytes int64

	mu      sync.Mutex
	entries *bounded.Cache[digest.Digest, V] // guarded by mu
}

func newMemory[V interface{ Bytes() int }](maxBytes int64) *memory[V] {
	return &memory[V]{maxBytes: maxBytes, entries: bounded.New[digest.Digest, V](maxBytes)}
}

// get returns the value of d.
func (c *memory[V]) get(d digest.Digest) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Get(d)
}

// add keeps value, unless value alone exceeds the memory. It returns value, or the one that existed
// before.
func (c *memory[V]) add(d digest.Digest, value V) V {
	cost := keptOverhead + int64(value.Bytes())
	c.mu.Lock()
	defer c.mu.Unlock()
	if first, ok := c.entries.Peek(d); ok {
		return first
	}
	if cost <= c.maxBytes {
		c.entries.Put(d, value, cost)
	}
	return value
}
