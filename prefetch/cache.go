package prefetch

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forerunner-build/forerunner/records/record"
)

// cache keeps what was used last of what is remembered, bounded by the memory it takes.
type cache struct {
	most int

	mu      sync.Mutex
	entries map[record.Key]*list.Element // of *entry
	recent  *list.List                   // the latest first
	bytes   int                          // sum of the weights
}

func newCache(most int) *cache {
	return &cache{most: most, entries: map[record.Key]*list.Element{}, recent: list.New()}
}

// entry is what is known under one key. It may be used after the cache dropped it.
type entry struct {
	key    record.Key
	weight int // of the entry in its cache, whose mu guards it

	known atomic.Pointer[knowledge] // never nil; written under mu
	asked atomic.Int64              // when the store was last asked, in Unix nanoseconds; 0: never

	mu      sync.Mutex // held while something is learnt
	stored  []byte     // the filter that the store has, as far as is known
	changes int        // what was learnt and not written
	writing bool       // somebody is at it
}

// get returns the entry of k, a new one if there is none.
func (c *cache) get(k record.Key) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries[k]; ok {
		c.recent.MoveToFront(e)
		return e.Value.(*entry)
	}
	e := &entry{key: k}
	e.known.Store(&knowledge{})
	c.entries[k] = c.recent.PushFront(e)
	c.weighLocked(e)
	return e
}

// weigh corrects what e takes and drops others for it.
func (c *cache) weigh(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[e.key]; ok && element.Value == e {
		c.weighLocked(e)
	}
}

func (c *cache) weighLocked(e *entry) {
	weight := e.known.Load().sizeBytes()
	c.bytes += weight - e.weight
	e.weight = weight
	for c.bytes > c.most && c.recent.Len() > 1 {
		last := c.recent.Remove(c.recent.Back()).(*entry)
		delete(c.entries, last.key)
		c.bytes -= last.weight
	}
}

// all returns every entry.
func (c *cache) all() []*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries := make([]*entry, 0, c.recent.Len())
	for e := c.recent.Front(); e != nil; e = e.Next() {
		entries = append(entries, e.Value.(*entry))
	}
	return entries
}

// isFresh reports whether the store was asked within the last age.
func (e *entry) isFresh(age time.Duration) bool {
	return time.Since(time.Unix(0, e.asked.Load())) < age
}
