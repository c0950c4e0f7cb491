package fetch

import (
	"container/list"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
)

// keptOverhead is about what a memory itself needs for one value: a list element,
// what it points to, and a place in the map.
const keptOverhead = 256

// A memory keeps what blobs say within a bound of bytes, the one unused for longest
// going first. The zero value with maxBytes set is ready.
type memory[V interface{ Bytes() int }] struct {
	maxBytes int64

	mu      sync.Mutex
	bytes   int64                           // guarded by mu
	entries map[digest.Digest]*list.Element // guarded by mu
	order   list.List                       // of *kept[V], used last first; guarded by mu
}

type kept[V interface{ Bytes() int }] struct {
	digest digest.Digest
	value  V
}

func (e *kept[V]) cost() int64 { return keptOverhead + int64(e.value.Bytes()) }

// get returns what is kept of d.
func (c *memory[V]) get(d digest.Digest) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[d]
	if e == nil {
		return value, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*kept[V]).value, true
}

// add keeps value, unless it alone is larger than the memory, and returns it or the
// one that came before it.
func (c *memory[V]) add(d digest.Digest, value V) V {
	added := &kept[V]{d, value}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[d]; e != nil {
		return e.Value.(*kept[V]).value
	}
	if added.cost() > c.maxBytes {
		return value
	}
	if c.entries == nil {
		c.entries = make(map[digest.Digest]*list.Element)
	}
	c.entries[d] = c.order.PushFront(added)
	for c.bytes += added.cost(); c.bytes > c.maxBytes; {
		last := c.order.Remove(c.order.Back()).(*kept[V])
		delete(c.entries, last.digest)
		c.bytes -= last.cost()
	}
	return value
}
