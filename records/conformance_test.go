package records

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/forerunner-build/forerunner/cas/digest"
	"github.com/forerunner-build/forerunner/cas/instance"
	"github.com/forerunner-build/forerunner/records/redistest"
)

// stores returns the implementations, each with a function that opens an empty store.
func stores() map[string]func(t *testing.T) Hints {
	return map[string]func(t *testing.T) Hints{
		"Memory": func(*testing.T) Hints { return NewMemory(0) },
		"Folder": func(t *testing.T) Hints { return NewFolder(filepath.Join(t.TempDir(), "new", "durable")) },
		"Bolt":   func(t *testing.T) Hints { return openBolt(t, boltPath(t), BoltOptions{}) },
		"Bolt that commits at once": func(t *testing.T) Hints {
			return openBolt(t, boltPath(t), BoltOptions{CommitAfter: 1})
		},
		"FSAC": func(t *testing.T) Hints { return NewFSAC(fsacServer(t, NewMemory(0)), FSACOptions{}) },
		"ISCC": func(t *testing.T) Hints {
			s := NewISCC(isccServer(t, NewMemory(0)), ISCCOptions{})
			s.buckets = []string{testKey(0).Bucket}
			return s
		},
		"Redis": func(t *testing.T) Hints {
			return openRedis(t, "redis://"+redistest.Start(t).Addr, RedisOptions{})
		},
	}
}

func boltPath(t *testing.T) string { return filepath.Join(t.TempDir(), "state", "records.bolt") }

func openBolt(t *testing.T, path string, o BoltOptions) *Bolt {
	t.Helper()
	b, err := OpenBolt(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// testKey returns the n-th of different keys.
func testKey(n int) Key {
	return Key{
		Bucket: "profile", Instance: "farm/main",
		Digest: digest.Of(digest.SHA256, binary.BigEndian.AppendUint64(nil, uint64(n))),
	}
}

// testValue returns a value of bytes plus testOverhead bytes. Every store accepts it, because all
// stores keep unknown fields.
func testValue(n, bytes int) []byte {
	filler := make([]byte, bytes)
	const period = 1024
	for i := range min(bytes, period) {
		filler[i] = byte(n + i*i>>3)
	}
	for done := period; done < bytes; done *= 2 {
		copy(filler[done:], filler[:done])
	}
	b := protowire.AppendTag(nil, testNumber, protowire.Fixed32Type)
	b = protowire.AppendFixed32(b, uint32(n))
	b = protowire.AppendTag(b, testNumber+1, protowire.BytesType)
	return protowire.AppendBytes(b, filler)
}

const (
	testNumber   = 1000
	testOverhead = 11 // for a value of 1 MiB
)

// versionOf returns n of a testValue.
func versionOf(value []byte) (n uint32, ok bool) {
	number, _, size := protowire.ConsumeTag(value)
	if size < 0 || number != testNumber {
		return 0, false
	}
	n, length := protowire.ConsumeFixed32(value[size:])
	return n, length > 0
}

// suite has the tests that every implementation must pass, each with an empty store.
var suite = map[string]func(t *testing.T, s Hints){
	"keeps records":      storeKeepsRecords,
	"tells keys apart":   storeTellsKeysApart,
	"shares no memory":   storeSharesNoMemory,
	"refuses":            storeRefuses,
	"concurrently":       storeConcurrently,
	"swaps":              durableComparesAndSwaps,
	"swaps concurrently": durableConcurrently,
}

func TestConformance(t *testing.T) {
	for name, open := range stores() {
		for what, test := range suite {
			t.Run(name+" "+what, func(t *testing.T) { test(t, open(t)) })
		}
	}
}

// TestRedisClusterConforms runs the whole suite with one Cluster, because a Cluster takes seconds
// to start.
func TestRedisClusterConforms(t *testing.T) {
	nodes := redistest.StartCluster(t)
	for what, test := range suite {
		for _, node := range nodes {
			node.Do("FLUSHALL")
		}
		t.Run(what, func(t *testing.T) { test(t, openRedis(t, clusterOf(nodes), RedisOptions{})) })
	}
}

func put(t *testing.T, s Hints, k Key, value []byte) {
	t.Helper()
	if err := s.Put(t.Context(), k, value); err != nil {
		t.Fatal(err)
	}
}

// expect fails the test unless k has the value want; nil means no record.
func expect(t *testing.T, s Hints, k Key, want []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), k)
	switch {
	case want == nil && !errors.Is(err, ErrNotFound):
		t.Errorf("get %s: %d bytes, %v, want ErrNotFound", k, len(got), err)
	case want != nil && (err != nil || got == nil || !bytes.Equal(got, want)):
		t.Errorf("get %s: %d bytes %.20x, %v, want %d bytes %.20x", k, len(got), got, err, len(want), want)
	}
}

func storeKeepsRecords(t *testing.T, s Hints) {
	k := testKey(1)
	expect(t, s, k, nil)
	for _, value := range [][]byte{
		testValue(1, 300), testValue(2, 5), {}, testValue(3, 100000), testValue(0, MaxValueBytes-testOverhead),
	} {
		put(t, s, k, value)
		expect(t, s, k, value)
		flush(t, s)
		expect(t, s, k, value)
	}
	expect(t, s, testKey(2), nil)
}

func flush(t *testing.T, s Hints) {
	t.Helper()
	if b, ok := s.(*Bolt); ok {
		if err := b.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func storeTellsKeysApart(t *testing.T, s Hints) {
	d := testKey(0).Digest
	longer, err := digest.Parse(d.Function(), d.Hash(), d.SizeBytes()+1)
	if err != nil {
		t.Fatal(err)
	}
	other, err := digest.Parse(digest.BLAKE3, d.Hash(), d.SizeBytes())
	if err != nil {
		t.Fatal(err)
	}
	keys := []Key{
		{Bucket: "profile", Instance: "", Digest: d},
		{Bucket: "profile", Instance: "a", Digest: d},
		{Bucket: "profile", Instance: "a/b", Digest: d},
		{Bucket: "profile", Instance: "a", Digest: longer},
		{Bucket: "profile", Instance: "a", Digest: other},
	}
	_, isFSAC := s.(*FSAC)
	_, isISCC := s.(*ISCC)
	if !isFSAC && !isISCC {
		keys = append(keys, Key{Bucket: "coarse", Instance: "a", Digest: d}, Key{Bucket: "profil", Instance: "ea", Digest: d})
	}
	for i, k := range keys {
		put(t, s, k, testValue(i, 10))
	}
	flush(t, s)
	for i, k := range keys {
		expect(t, s, k, testValue(i, 10))
	}
}

func storeSharesNoMemory(t *testing.T, s Hints) {
	k, want := testKey(1), testValue(1, 100)
	given := bytes.Clone(want)
	put(t, s, k, given)
	clear(given)
	for range 2 {
		got, err := s.Get(t.Context(), k)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%x, %v", got, err)
		}
		clear(got)
		flush(t, s)
	}
	expect(t, s, k, want)
}

func storeRefuses(t *testing.T, s Hints) {
	long := string(make([]byte, instance.MaxBytes+1))
	good := testKey(1)
	for name, c := range map[string]struct {
		key   Key
		value []byte
	}{
		"large value":   {good, testValue(0, MaxValueBytes-testOverhead+1)},
		"no bucket":     {Key{Bucket: "", Instance: "", Digest: good.Digest}, nil},
		"long bucket":   {Key{Bucket: long, Instance: "", Digest: good.Digest}, nil},
		"long instance": {Key{Bucket: "profile", Instance: long, Digest: good.Digest}, nil},
		"no digest":     {Key{Bucket: "profile"}, nil},
	} {
		if err := s.Put(t.Context(), c.key, c.value); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: put: %v", name, err)
		}
		if _, err := s.Get(t.Context(), c.key); c.key != good && !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: get: %v", name, err)
		}
	}
	expect(t, s, good, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ctx, good, testValue(1, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled put: %v", err)
	}
	if _, err := s.Get(ctx, good); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled get: %v", err)
	}
}

// storeConcurrently has several writers count up their own records, while readers check that no
// record goes back.
func storeConcurrently(t *testing.T, s Hints) {
	const writers, readers, keys, rounds = 4, 4, 8, 25
	var wait sync.WaitGroup
	for w := range writers {
		wait.Go(func() {
			for n := range rounds * keys {
				if err := s.Put(t.Context(), testKey(w*keys+n%keys), testValue(n, 50+n*7%5000)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range readers {
		wait.Go(func() {
			var last [writers * keys]uint32
			for n := range rounds * writers * keys {
				expectGrowing(t, s, n%len(last), &last[n%len(last)])
			}
		})
	}
	wait.Wait()
	for w := range writers {
		for n := (rounds - 1) * keys; n < rounds*keys; n++ {
			expect(t, s, testKey(w*keys+n%keys), testValue(n, 50+n*7%5000))
		}
	}
}

// expectGrowing reads record k, which must be intact and not older than last, and updates last.
func expectGrowing(t *testing.T, s Hints, k int, last *uint32) {
	b, err := s.Get(t.Context(), testKey(k))
	if errors.Is(err, ErrNotFound) && *last == 0 {
		return
	}
	n, ok := versionOf(b)
	if err != nil || !ok || n < *last || !bytes.Equal(b, testValue(int(n), 50+int(n)*7%5000)) {
		t.Errorf("record %d: version %d after %d, or not whole: %v", k, n, *last, err)
	}
	*last = n
}

func durableComparesAndSwaps(t *testing.T, s Hints) {
	w, ok := s.(Durable)
	if !ok {
		return
	}
	k := testKey(1)
	a, b, empty := testValue(1, 10), testValue(2, 10), []byte{}
	for i, step := range []struct {
		old, value []byte
		want       error
	}{
		{a, b, ErrConflict},
		{empty, b, ErrConflict},
		{nil, a, nil},
		{nil, b, ErrConflict},
		{b, a, ErrConflict},
		{a, b, nil},
		{b, empty, nil},
		{nil, a, ErrConflict},
		{empty, a, nil},
		{a, make([]byte, MaxValueBytes+1), ErrInvalid},
	} {
		before, _ := s.Get(t.Context(), k)
		if i%2 == 0 {
			flush(t, s)
		}
		if err := w.CompareAndSwap(t.Context(), k, step.old, step.value); !errors.Is(err, step.want) {
			t.Errorf("step %d: %v, want %v", i, err, step.want)
		}
		if step.want == nil {
			before = step.value
		}
		expect(t, s, k, before)
	}
}

// durableConcurrently has several writers count. No step may be lost.
func durableConcurrently(t *testing.T, s Hints) {
	w, ok := s.(Durable)
	if !ok {
		return
	}
	const writers, steps = 4, 100
	k := testKey(1)
	put(t, s, k, []byte("0"))
	var wait sync.WaitGroup
	for range writers {
		wait.Go(func() {
			for range steps {
				if err := countUp(t.Context(), s, w, k); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	expect(t, s, k, fmt.Append(nil, writers*steps))
}

// countUp adds one to the number in k.
func countUp(ctx context.Context, s Hints, w Durable, k Key) error {
	for {
		old, err := s.Get(ctx, k)
		if err != nil {
			return err
		}
		var n int
		if _, err := fmt.Sscan(string(old), &n); err != nil {
			return err
		}
		if err := w.CompareAndSwap(ctx, k, old, fmt.Append(nil, n+1)); !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

// TestStoreForgetsWhatWasNotUsed fills a bucket beyond its limit while some records are used.
func TestStoreForgetsWhatWasNotUsed(t *testing.T) {
	const limit, size, used = 1 << 20, 10000, 20
	for name, s := range map[string]Hints{
		"Memory": NewMemory(limit),
		"Bolt":   openBolt(t, boltPath(t), BoltOptions{MaxBytes: 64 << 20, BucketMaxBytes: map[string]int64{"profile": limit}}),
		"Redis":  openRedis(t, "redis://"+redistest.Start(t).Addr, RedisOptions{MaxBytes: limit}),
	} {
		t.Run(name, func(t *testing.T) {
			other := testKey(0)
			other.Bucket = "other"
			put(t, s, other, testValue(0, size))
			for n := range 400 {
				put(t, s, testKey(n), testValue(n, size))
				flush(t, s)
				for i := n % 4; i < min(n, used); i += 4 { // a quarter of them each time
					expect(t, s, testKey(i), testValue(i, size))
				}
			}
			expect(t, s, other, testValue(0, size))
			var there int
			for n := range 400 {
				if _, err := s.Get(t.Context(), testKey(n)); err == nil {
					there++
				} else if n > 400-used {
					t.Errorf("new record %d is gone", n)
				}
			}
			if there*size > limit || there*size < limit*8/10 {
				t.Errorf("%d records of %d bytes are there, for a limit of %d", there, size, limit)
			}
			if err := s.Put(t.Context(), testKey(1), make([]byte, limit)); !errors.Is(err, ErrInvalid) {
				t.Errorf("put of a record as large as the bucket: %v", err)
			}
		})
	}
}
