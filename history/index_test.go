package history

import (
	"hash/maphash"
	"testing"
)

// TestSameHash has two texts with one hash.
func TestSameHash(t *testing.T) {
	x := newIndex()
	one := x.numberOf(Target, "one")
	x.numbers[Target][maphash.String(hashes, "two")] = one
	if two := x.numberOf(Target, "two"); x.tables[Target][one] != "one" || x.tables[Target][two] != "two" {
		t.Errorf("the texts are %q", x.tables[Target])
	}
	if again := x.numberOf(Target, "one"); again != one {
		t.Errorf("the first text has the numbers %d and %d", one, again)
	}
}
