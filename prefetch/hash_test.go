package prefetch

import (
	"hash/fnv"
	"strings"
	"testing"
)

// hashOf is the definition of the hash of a path, with extra slashes at its end.
func hashOf(path string, extra int) uint64 {
	h := fnv.New64a()
	if path != "" {
		for name := range strings.SplitSeq(path, "/") {
			_, _ = h.Write([]byte("/" + name))
		}
	}
	_, _ = h.Write([]byte(strings.Repeat("/", extra)))
	return h.Sum64()
}

func TestHashPath(t *testing.T) {
	for path, want := range map[string]PathHash{
		"":                    0xcbf29ce484222325,
		"a":                   0x07d66707b49cd92d,
		"a/b":                 0x363e289cb38ee0cc,
		"usr/include/stdio.h": 0xf84947e8a755eb57,
	} {
		if got := HashPath(path); got != want {
			t.Errorf("HashPath(%q) = %#x, want %#x", path, got, want)
		}
	}
	for _, path := range []string{"", "a", "a/b", "a/b/c", "ab/c", "a/bc", "\xff\x00", "a\\b"} {
		if got := uint64(HashPath(path)); got != hashOf(path, 0) {
			t.Errorf("HashPath(%q) = %#x, want %#x", path, got, hashOf(path, 0))
		}
		h := RootHash
		for name := range strings.SplitSeq(path, "/") {
			if name != "" {
				h = h.Child(name)
			}
		}
		if h != HashPath(path) {
			t.Errorf("the children down to %q have %#x, want %#x", path, h, HashPath(path))
		}
	}
}

func TestParentOf(t *testing.T) {
	for path, want := range map[string]string{"a": "", "a/b": "a", "a/b/c": "a/b"} {
		if got, ok := parentOf(path); got != want || !ok {
			t.Errorf("parentOf(%q) = %q, %t", path, got, ok)
		}
	}
	if got, ok := parentOf(""); ok {
		t.Errorf("the root has the parent %q", got)
	}
}

func BenchmarkChild(b *testing.B) {
	h := RootHash
	for b.Loop() {
		h = h.Child("some_header_name.hpp")
	}
}
