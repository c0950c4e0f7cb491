package fetch

import (
	"sync"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/cas/digest"
)

// keptOverhead is about what a memory itself needs for one value: a list element,
// what it points to, and a place in the map.
const keptOverhead = 256

// A memory keeps what blobs say within a bound of bytes, the one unused for longest
// going first.
type memory[V interface{ Bytes() int }] struct {
	maxBytes int64

	mu      sync.Mutex
	entries *bounded.Cache[digest.Digest, V] // guarded by mu
}

func newMemory[V interface{ Bytes() int }](maxBytes int64) *memory[V] {
	return &memory[V]{maxBytes: maxBytes, entries: bounded.New[digest.Digest, V](maxBytes)}
}

// get returns what is kept of d.
func (c *memory[V]) get(d digest.Digest) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.entries.Get(d)
}

// add keeps value, unless it alone is larger than the memory, and returns it or the
// one that came before it.
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
