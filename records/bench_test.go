package records

import (
	"fmt"
	"testing"
)

// BenchmarkGet reads records of 4 KiB. A Bolt has committed them.
func BenchmarkGet(b *testing.B) {
	benchmark(b, func(s Hints, k Key) { _, _ = s.Get(b.Context(), k) })
}

// BenchmarkPut replaces records of 4 KiB, while a Bolt commits.
func BenchmarkPut(b *testing.B) {
	value := testValue(1, 4<<10)
	benchmark(b, func(s Hints, k Key) {
		if err := s.Put(b.Context(), k, value); err != nil {
			b.Fatal(err)
		}
	})
}

func benchmark(b *testing.B, operation func(s Hints, k Key)) {
	const records = 1000
	keys := make([]Key, records)
	for n := range keys {
		keys[n] = testKey(n)
	}
	bolt, err := OpenBolt(fmt.Sprintf("%s/records", b.TempDir()), BoltOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = bolt.Close() }()
	for _, s := range []Hints{NewMemory(0), bolt} {
		for n, k := range keys {
			if err := s.Put(b.Context(), k, testValue(n, 4<<10)); err != nil {
				b.Fatal(err)
			}
		}
		if err := bolt.Flush(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("%T", s)[4:], func(b *testing.B) {
			b.ReportAllocs()
			for n := range b.N {
				operation(s, keys[n%records])
			}
		})
	}
}
