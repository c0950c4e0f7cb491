package prefetch

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/forerunner-build/forerunner/bounded"
	"github.com/forerunner-build/forerunner/prefetch/score"
	"github.com/forerunner-build/forerunner/records/record"
)

// cache keeps the recently used records, within a limit of memory.
type cache struct {
	mu      sync.Mutex
	entries *bounded.Cache[record.Key, *entry] // guarded by mu
}

func newCache(most int) *cache {
	return &cache{entries: bounded.New[record.Key, *entry](int64(most))}
}

// entry is the knowledge under one key. It may be used after the cache dropped it.
type entry struct {
	key record.Key

	known atomic.Pointer[knowledge] // never nil; written under mu
	asked atomic.Int64              // when the store was last asked, in Unix nanoseconds; 0: never

	mu       sync.Mutex // held while something is learnt
	stored   []byte     // the filter that the store has, as far as is known
	changes  int        // learnt, and not written
	held     int        // learnt, too, but not worth writing alone
	reorders reorders
	misled   *score.Score // if the latest compared run read little of what known predicts: the score before it
	writing  bool         // a goroutine is writing
}

func (e *entry) weight() int64 { return int64(e.known.Load().sizeBytes()) }

// get returns the entry of k, a new one if there is none.
func (c *cache) get(k record.Key) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.entries.Get(k); ok {
		return e
	}
	e := &entry{key: k}
	e.known.Store(&knowledge{})
	c.entries.Put(k, e, e.weight())
	return e
}

// weigh updates the size of e and drops other entries for it.
func (c *cache) weigh(e *entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept, ok := c.entries.Peek(e.key); ok && kept == e {
		c.entries.Reweigh(e.key, e.weight())
	}
}

// all returns every entry.
func (c *cache) all() []*entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(c.entries.Values())
}

// isFresh reports whether the store was asked within the last age.
func (e *entry) isFresh(age time.Duration) bool {
	return time.Since(time.Unix(0, e.asked.Load())) < age
}
