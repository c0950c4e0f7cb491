package cas

import (
	"container/list"
	"sync"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/tree"
)

// cachedOverhead is about what the cache itself needs for one directory: a list
// element, what it points to, and a place in the map.
const cachedOverhead = 256

// A directoryCache keeps directories within a bound of memory, the one unused
// for longest going first. The zero value with maxBytes set is ready.
type directoryCache struct {
	maxBytes int64

	mu      sync.Mutex
	bytes   int64                           // guarded by mu
	entries map[digest.Digest]*list.Element // guarded by mu
	order   list.List                       // of *cached, used last first; guarded by mu
}

type cached struct {
	digest    digest.Digest
	directory *tree.Directory
}

func (e *cached) cost() int64 { return cachedOverhead + int64(e.directory.Bytes()) }

// get returns nil for what is not there.
func (c *directoryCache) get(d digest.Digest) *tree.Directory {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[d]
	if e == nil {
		return nil
	}
	c.order.MoveToFront(e)
	return e.Value.(*cached).directory
}

// add keeps dir, unless it alone is larger than the cache, and returns it or the
// one that came before it.
func (c *directoryCache) add(d digest.Digest, dir *tree.Directory) *tree.Directory {
	added := &cached{d, dir}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[d]; e != nil {
		return e.Value.(*cached).directory
	}
	if added.cost() > c.maxBytes {
		return dir
	}
	if c.entries == nil {
		c.entries = make(map[digest.Digest]*list.Element)
	}
	c.entries[d] = c.order.PushFront(added)
	for c.bytes += added.cost(); c.bytes > c.maxBytes; {
		last := c.order.Remove(c.order.Back()).(*cached)
		delete(c.entries, last.digest)
		c.bytes -= last.cost()
	}
	return dir
}
