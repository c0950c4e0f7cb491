package listing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestList compares a List, read from any number on, with a slice.
func TestList(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		var l List[int]
		var want []uint64
		for step := range 5000 {
			if stays := int(seed) * 50; random.IntN(2*stays+len(want)+1) < stays {
				number := l.Last() + 1
				if got := l.Add(int(number)*2, tagOf(number)); got != number || l.Last() != number {
					t.Fatalf("seed %d: item %d has number %d", seed, number, got)
				}
				want = append(want, number)
			} else if len(want) > 0 {
				at := random.IntN(1 + random.IntN(len(want))) // rather an early one
				l.Remove(want[at])
				want = slices.Delete(want, at, at+1)
			}
			if step%50 == 0 {
				after := random.Uint64N(l.Last() + 3)
				compare(t, &l, want, after, 0)
				compare(t, &l, slices.DeleteFunc(slices.Clone(want), func(n uint64) bool { return tagOf(n) != 2 }), after, 2)
			}
		}
		if l.Len() != len(want) {
			t.Fatalf("seed %d: %d items, want %d", seed, l.Len(), len(want))
		}
		if held := len(l.blocks); held > 2*l.Len()+1 || held > 0 && (l.blocks[0] == nil || l.blocks[held-1] == nil) {
			t.Fatalf("seed %d: %d blocks are held for %d items", seed, held, l.Len())
		}
	}
}

func tagOf(number uint64) Tag { return Tag(1 + number%3) }

func compare(t *testing.T, l *List[int], want []uint64, after uint64, tag Tag) {
	t.Helper()
	at, found := slices.BinarySearch(want, after)
	if found {
		at++
	}
	var got []uint64
	for number, item := range l.After(after, tag) {
		if item != int(number)*2 {
			t.Fatalf("item %d has number %d", item, number)
		}
		got = append(got, number)
	}
	if !slices.Equal(got, want[at:]) {
		t.Fatalf("after %d: %v, want %v", after, got, want[at:])
	}
	for number := range l.After(after, tag) {
		if number != want[at] {
			t.Fatalf("%d is the first after %d, want %d", number, after, want[at])
		}
		break
	}
}

// TestGaps removes most of many items, at random. The memory held for the remaining ones must be
// bounded.
func TestGaps(t *testing.T) {
	var l List[int]
	for range 100_000 {
		if n := l.Add(1, 0); n%1000 > 0 {
			l.Remove(n)
		}
	}
	if l.Len() != 100 || len(l.blocks) > 2*l.Len()+1 {
		t.Errorf("%d blocks are held for %d items", len(l.blocks), l.Len())
	}
	for number := range l.After(0, 0) {
		l.Remove(number)
	}
	if l.Len() != 0 || len(l.blocks) != 1 || l.vacant != 0 {
		t.Errorf("an empty list has %d blocks, %d vacant, %d items", len(l.blocks), l.vacant, l.Len())
	}
}

// TestTags: texts of a kind have different tags, and none has the tag any.
func TestTags(t *testing.T) {
	tags := map[Tag]int{}
	for i := range 10_000 {
		tags[TagOf(fmt.Sprintf("11111111-1111-1111-1111-%012d", i))]++
	}
	if n := tags[0]; n > 0 || len(tags) < 9000 {
		t.Errorf("%d texts have no tag, all have %d different ones", n, len(tags))
	}
	if TagOf("") == 0 {
		t.Error("an empty text has no tag")
	}
}
