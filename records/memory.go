package records

import (
	"bytes"
	"context"
	"sync"

	"github.com/forerunner-build/forerunner/bounded"
)

// defaultMaxBytes is the default limit of a bucket.
const defaultMaxBytes = 128 << 20

var (
	_ Hints   = (*Memory)(nil)
	_ Durable = (*Memory)(nil)
)

// A Memory keeps records until the process ends, for tests, and for hints whose file cannot be
// opened. The zero Memory is not usable.
type Memory struct {
	maxBytes int64

	mu      sync.Mutex
	buckets map[string]*bounded.Cache[Key, []byte] // guarded by mu; values never change, they are replaced
}

// NewMemory returns an empty Memory with at most maxBytes in each bucket; 0 means 128 MiB.
func NewMemory(maxBytes int64) *Memory {
	if maxBytes <= 0 {
		maxBytes = defaultMaxBytes
	}
	return &Memory{maxBytes: maxBytes, buckets: map[string]*bounded.Cache[Key, []byte]{}}
}

// Get implements Hints and Durable.
func (m *Memory) Get(ctx context.Context, k Key) ([]byte, error) {
	if err := usable(ctx, k); err != nil {
		return nil, about("get", k, err)
	}
	value := m.get(k)
	if value == nil {
		return nil, about("get", k, ErrNotFound)
	}
	return append([]byte{}, value...), nil
}

// Put implements Hints and Durable.
func (m *Memory) Put(ctx context.Context, k Key, value []byte) error {
	if err := m.storable(ctx, k, value); err != nil {
		return about("put", k, err)
	}
	value = append([]byte{}, value...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.putLocked(k, value)
	return nil
}

// CompareAndSwap implements Durable.
func (m *Memory) CompareAndSwap(ctx context.Context, k Key, old, value []byte) error {
	if err := m.storable(ctx, k, value); err != nil {
		return about("swap", k, err)
	}
	value = append([]byte{}, value...)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !same(m.getLocked(k), old) {
		return about("swap", k, ErrConflict)
	}
	m.putLocked(k, value)
	return nil
}

func (m *Memory) storable(ctx context.Context, k Key, value []byte) error {
	if err := usable(ctx, k); err != nil {
		return err
	}
	return checkValue(k, len(value), m.maxBytes)
}

func (m *Memory) get(k Key) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.getLocked(k)
}

// getLocked returns the value under k, or nil, and counts it as used.
func (m *Memory) getLocked(k Key) []byte {
	b := m.buckets[k.Bucket]
	if b == nil {
		return nil
	}
	value, _ := b.Get(k)
	return value
}

func (m *Memory) putLocked(k Key, value []byte) {
	b := m.buckets[k.Bucket]
	if b == nil {
		b = bounded.New[Key, []byte](m.maxBytes)
		m.buckets[k.Bucket] = b
	}
	b.Put(k, value, recordBytes(k, len(value)))
}

// usable returns an error if the key is invalid or ctx has ended.
func usable(ctx context.Context, k Key) error {
	if err := check(k); err != nil {
		return err
	}
	return ctx.Err()
}

// same reports whether two values are the same; nil stands for no record.
func same(a, b []byte) bool {
	return (a == nil) == (b == nil) && bytes.Equal(a, b)
}
