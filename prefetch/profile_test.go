package prefetch

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/forerunner-build/forerunner/proto/fsac"
)

// naiveFilter makes the bytes of a filter with m bits and k hashes out of their
// definition, one bit at a time.
func naiveFilter(paths []string, m, k int) []byte {
	bits := make([]bool, m)
	for _, path := range paths {
		for i := range k {
			bits[hashOf(path, i)%uint64(m)] = true
		}
	}
	bits = append(bits, true)
	for len(bits)%8 != 0 {
		bits = append(bits, false)
	}
	b := make([]byte, len(bits)/8)
	for i, bit := range bits {
		if bit {
			b[i/8] |= 1 << (i % 8)
		}
	}
	return b
}

// naiveBits returns the bits of a filter, each as a bool.
func naiveBits(m *fsac.FileSystemAccessProfile) (bits []bool) {
	for _, b := range m.GetBloomFilter() {
		for i := range 8 {
			bits = append(bits, b>>i&1 == 1)
		}
	}
	for !bits[len(bits)-1] {
		bits = bits[:len(bits)-1]
	}
	return bits[:len(bits)-1]
}

func naiveContains(bits []bool, hashes int, path string) bool {
	for i := range hashes {
		if !bits[hashOf(path, i)%uint64(len(bits))] {
			return false
		}
	}
	return true
}

func hashesOf(paths ...string) []PathHash {
	var hashes []PathHash
	for _, path := range paths {
		hashes = append(hashes, HashPath(path))
	}
	return hashes
}

func numbered(format string, n int) []string {
	paths := make([]string, n)
	for i := range paths {
		paths[i] = fmt.Sprintf(format, i)
	}
	return paths
}

// TestProfileBytes has filters that were worked out by hand: for the root alone, 17
// is the first prime from 14 on, and its hashes modulo 17 are 13, 1, 0, 6, 5, 6, 7,
// 14, 6, 10, 5 and 14; bit 17 ends the filter.
func TestProfileBytes(t *testing.T) {
	for _, test := range []struct {
		paths []string
		want  string
		k     uint32
	}{
		{nil, "80", 1},
		{[]string{""}, "e36402", 12},
		{[]string{"", "a", "a/b"}, "c4c333c7570e", 10},
	} {
		got := NewProfile(hashesOf(test.paths...), ProfileOptions{}).Message()
		if hex.EncodeToString(got.GetBloomFilter()) != test.want || got.GetBloomFilterHashFunctions() != test.k {
			t.Errorf("%q: %x with %d hashes, want %s with %d", test.paths,
				got.GetBloomFilter(), got.GetBloomFilterHashFunctions(), test.want, test.k)
		}
	}
}

// TestForeignProfile reads the filter that Buildbarn's tests publish for four paths,
// which has another size than we would choose.
func TestForeignProfile(t *testing.T) {
	paths := []string{"", "dir", "file", "dir/file"}
	published := []byte{0x1d, 0xb2, 0x43, 0xf1, 0x61, 0xfa, 0x18, 0x3f}
	if got := naiveFilter(paths, 61, 11); !bytes.Equal(got, published) {
		t.Errorf("the naive filter is %x", got)
	}
	m := &fsac.FileSystemAccessProfile{BloomFilter: published, BloomFilterHashFunctions: 11}
	p, ok := ParseProfile(m)
	if !ok {
		t.Fatal("it is taken for malformed")
	}
	for _, path := range paths {
		if !p.Contains(HashPath(path)) {
			t.Errorf("it lacks %q", path)
		}
	}
	if p.Contains(HashPath("nonexistent")) {
		t.Error("it has a path that is not in it")
	}
	if !proto.Equal(p.Message(), m) {
		t.Errorf("it comes back as %v", p.Message())
	}
}

func TestProfileAgainstNaive(t *testing.T) {
	for _, n := range []int{0, 1, 2, 3, 7, 50, 1000, 6000} {
		in, out := numbered("dir%d/file.h", n), numbered("other/%d", 2000)
		p := NewProfile(hashesOf(in...), ProfileOptions{})
		m := p.Message()
		if want := naiveFilter(in, int(p.filter.Cap()), int(p.filter.K())); !bytes.Equal(m.GetBloomFilter(), want) {
			t.Errorf("%d paths: the filter differs from the naive one", n)
		}
		back, ok := ParseProfile(m)
		if !ok || !proto.Equal(back.Message(), m) {
			t.Errorf("%d paths: the filter does not survive a round trip", n)
			continue
		}
		bits, hashes := naiveBits(m), int(m.GetBloomFilterHashFunctions())
		for _, p := range []*Profile{p, back} {
			for _, path := range in {
				if !p.Contains(HashPath(path)) {
					t.Fatalf("%d paths: %q is missing", n, path)
				}
			}
			for _, path := range out {
				if got, want := p.Contains(HashPath(path)), naiveContains(bits, hashes, path); got != want {
					t.Fatalf("%d paths: Contains(%q) = %t, naively %t", n, path, got, want)
				}
			}
		}
	}
}

func TestProfileSize(t *testing.T) {
	for _, test := range []struct {
		n        int
		o        ProfileOptions
		bytes    int     // at most
		atMost   float64 // false positives
		m, k     uint
		estimate int
	}{
		{n: 0, bytes: 1, atMost: 0, m: 7, k: 1},
		{n: 1000, bytes: 1752, atMost: 0.002, m: 14009, k: 10, estimate: 1000},
		{n: 15000, bytes: 26252, atMost: 0.002, m: 210011, k: 10, estimate: 15000},
		{n: 1000, o: ProfileOptions{BitsPerPath: 7}, bytes: 876, atMost: 0.05, m: 7001, k: 5, estimate: 1000},
		{n: 100_000, bytes: 128 << 10, atMost: 0.008, m: 1048573, k: 7, estimate: 100_000},
		{n: 1000, o: ProfileOptions{MaxBytes: 500}, bytes: 500, atMost: 0.25, m: 3989, k: 3, estimate: 1000},
		{n: 1000, o: ProfileOptions{MaxBytes: 1}, bytes: 1, atMost: 1, m: 7, k: 1, estimate: 7},
	} {
		p := NewProfile(hashesOf(numbered("a/%d", test.n)...), test.o)
		if p.SizeBytes() > test.bytes || len(p.Message().GetBloomFilter()) != p.SizeBytes() {
			t.Errorf("%d paths, %+v: %d bytes", test.n, test.o, p.SizeBytes())
		}
		if p.filter.Cap() != test.m || p.filter.K() != test.k {
			t.Errorf("%d paths, %+v: %d bits, %d hashes", test.n, test.o, p.filter.Cap(), p.filter.K())
		}
		if math.Abs(float64(p.Paths()-test.estimate)) > 0.02*float64(test.estimate) {
			t.Errorf("%d paths, %+v: estimated as %d", test.n, test.o, p.Paths())
		}
		found, others := 0, numbered("other/%d", 20_000)
		for _, h := range hashesOf(others...) {
			if p.Contains(h) {
				found++
			}
		}
		share := float64(found) / float64(len(others))
		if share > test.atMost || p.FalsePositives() > test.atMost || math.Abs(share-p.FalsePositives()) > 0.02 {
			t.Errorf("%d paths, %+v: %.4f false positives, foretold %.4f, want at most %.4f",
				test.n, test.o, share, p.FalsePositives(), test.atMost)
		}
	}
}

func TestMalformedProfile(t *testing.T) {
	message := func(b []byte, k uint32) *fsac.FileSystemAccessProfile {
		return &fsac.FileSystemAccessProfile{BloomFilter: b, BloomFilterHashFunctions: k}
	}
	for name, m := range map[string]*fsac.FileSystemAccessProfile{
		"nil":         nil,
		"empty":       {},
		"no filter":   message(nil, 3),
		"no end":      message([]byte{0x12, 0}, 3),
		"only zeros":  message([]byte{0}, 3),
		"no bits":     message([]byte{1}, 3),
		"no hashes":   message([]byte{0xff, 0x80}, 0),
		"endless":     message(append(make([]byte, maxForeignBytes), 1), 3),
		"zeros after": message([]byte{0xff, 0xff, 0, 0}, 3),
	} {
		if p, ok := ParseProfile(m); ok || p != nil {
			t.Errorf("%s: it is taken for a profile", name)
		}
	}
	// With as many hashes as fit into the field, an answer must still come at once.
	full := message(bytes.Repeat([]byte{0xff}, 1000), math.MaxUint32)
	p, ok := ParseProfile(full)
	if !ok || !p.Contains(RootHash) || p.FalsePositives() != 1 {
		t.Error("a full filter with many hashes does not match all")
	}
	if k := p.Message().GetBloomFilterHashFunctions(); k != maxHashes {
		t.Errorf("%d hashes are in use", k)
	}
}

func TestProfileWith(t *testing.T) {
	p := NewProfile(hashesOf("", "a"), ProfileOptions{})
	before := p.Message()
	q := p.with(hashesOf("b"))
	if !q.Contains(HashPath("b")) || !q.Contains(HashPath("a")) {
		t.Error("the copy lacks a path")
	}
	if !proto.Equal(p.Message(), before) || p.Contains(HashPath("b")) {
		t.Error("the profile itself has changed")
	}
}

func FuzzParseProfile(f *testing.F) {
	f.Add([]byte{0x1d, 0xb2, 0x43, 0xf1, 0x61, 0xfa, 0x18, 0x3f}, uint32(11), "dir/file")
	f.Add([]byte{1}, uint32(1), "")
	f.Add([]byte{0xff, 0}, uint32(math.MaxUint32), "a")
	f.Add(bytes.Repeat([]byte{0xff}, 17), uint32(math.MaxUint32), "a")
	f.Fuzz(func(t *testing.T, filter []byte, k uint32, path string) {
		m := &fsac.FileSystemAccessProfile{BloomFilter: filter, BloomFilterHashFunctions: k}
		p, ok := ParseProfile(m)
		if !ok {
			if len(filter) > 1 && filter[len(filter)-1] != 0 && k > 0 {
				t.Fatal("a good filter was refused")
			}
			return
		}
		back := p.Message()
		if !bytes.Equal(back.GetBloomFilter(), filter) || back.GetBloomFilterHashFunctions() != min(k, maxHashes) {
			t.Fatalf("%x with %d hashes came back", back.GetBloomFilter(), back.GetBloomFilterHashFunctions())
		}
		h := HashPath(path)
		if p.Contains(h) != naiveContainsHash(back, h) {
			t.Fatalf("Contains(%#x) = %t", h, p.Contains(h))
		}
		if share := p.FalsePositives(); share < 0 || share > 1 || p.Paths() < 0 {
			t.Fatalf("%f false positives, %d paths", share, p.Paths())
		}
		if !p.with([]PathHash{h}).Contains(h) {
			t.Fatal("what was added is not there")
		}
	})
}

// naiveContainsHash is naiveContains for a hash whose path is not well-formed.
func naiveContainsHash(m *fsac.FileSystemAccessProfile, h PathHash) bool {
	b := m.GetBloomFilter()
	size := uint64(8*len(b) - 1)
	for b[size/8]>>(size%8)&1 == 0 {
		size--
	}
	for range m.GetBloomFilterHashFunctions() {
		bit := uint64(h) % size
		if b[bit/8]>>(bit%8)&1 == 0 {
			return false
		}
		h = (h ^ '/') * 1099511628211
	}
	return true
}

func BenchmarkContains(b *testing.B) {
	in, out := hashesOf(numbered("dir/%d", 15_000)...), hashesOf(numbered("no/%d", 15_000)...)
	p := NewProfile(in, ProfileOptions{})
	for name, hashes := range map[string][]PathHash{"in": in, "out": out} {
		b.Run(name, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				p.Contains(hashes[i%len(hashes)])
			}
		})
	}
}

func BenchmarkNewProfile(b *testing.B) {
	hashes := hashesOf(numbered("dir/%d", 15_000)...)
	for b.Loop() {
		NewProfile(hashes, ProfileOptions{})
	}
}
