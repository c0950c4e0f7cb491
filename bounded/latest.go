package bounded

import (
	"sync"

	lru "github.com/hashicorp/golang-lru/v2/simplelru"
)

// A Latest keeps a limited number of entries, those that were used most recently. A Latest is not
// safe for concurrent use; Shared is.
type Latest[K comparable, V any] struct{ entries lru.LRUCache[K, V] }

// NewLatest returns an empty Latest with that maximum number of entries, at least one.
func NewLatest[K comparable, V any](most int) *Latest[K, V] {
	entries, err := lru.NewLRU[K, V](max(most, 1), nil)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Latest[K, V]{entries}
}

// Get returns the value of k, and counts it as used; false if there is none.
func (l *Latest[K, V]) Get(k K) (value V, ok bool) { return l.entries.Get(k) }

// Peek is Get, but does not count k as used.
func (l *Latest[K, V]) Peek(k K) (value V, ok bool) { return l.entries.Peek(k) }

// Put sets the value of k, counts it as used, and removes the least recently used entry if there
// are too many.
func (l *Latest[K, V]) Put(k K, v V) { l.entries.Add(k, v) }

// Remove removes k, if it exists.
func (l *Latest[K, V]) Remove(k K) { l.entries.Remove(k) }

// Oldest returns the least recently used entry; false if there is none.
func (l *Latest[K, V]) Oldest() (k K, value V, ok bool) { return l.entries.GetOldest() }

// Len returns the number of entries.
func (l *Latest[K, V]) Len() int { return l.entries.Len() }

// A Shared is a Latest whose methods may be called concurrently.
type Shared[K comparable, V any] struct {
	mu      sync.Mutex
	entries *Latest[K, V] // guarded by mu
}

// NewShared returns an empty Shared with that maximum number of entries, at least one.
func NewShared[K comparable, V any](most int) *Shared[K, V] {
	return &Shared[K, V]{entries: NewLatest[K, V](most)}
}

// Get is Latest.Get.
func (s *Shared[K, V]) Get(k K) (value V, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries.Get(k)
}

// Has reports whether there is a value of k, and does not count it as used.
func (s *Shared[K, V]) Has(k K) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.entries.Peek(k)
	return ok
}

// Put is Latest.Put.
func (s *Shared[K, V]) Put(k K, v V) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entries.Put(k, v)
}

// Len returns the number of entries.
func (s *Shared[K, V]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries.Len()
}
