package bounded

import "sync"

// memoryOverhead is about the overhead of one entry of a Memory: a list element, its struct, and a
// place in the map.
const memoryOverhead = 256

// A Memory is a Cache by bytes that may be used concurrently. Each entry counts with its overhead,
// too, and one that alone exceeds the limit is not kept.
type Memory[K comparable, V any] struct {
	most int64

	mu      sync.Mutex
	entries *Cache[K, V] // guarded by mu
}

// NewMemory returns an empty Memory with that maximum number of bytes.
func NewMemory[K comparable, V any](most int64) *Memory[K, V] {
	return &Memory[K, V]{most: most, entries: New[K, V](most)}
}

// Get returns the value of k, and counts it as used; false if there is none.
func (m *Memory[K, V]) Get(k K) (value V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries.Get(k)
}

// Add keeps v, which has so many bytes, unless there is a value of k. It returns v, or the value
// that existed before.
func (m *Memory[K, V]) Add(k K, v V, bytes int64) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	if first, ok := m.entries.Peek(k); ok {
		return first
	}
	if weight := memoryOverhead + bytes; weight <= m.most {
		m.entries.Put(k, v, weight)
	}
	return v
}

// Weight returns the number of bytes of all entries, with their overhead.
func (m *Memory[K, V]) Weight() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries.Weight()
}
