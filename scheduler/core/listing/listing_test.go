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
		var l Tagged[int]
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
		blocks := l.list.blocks
		if held := len(blocks); held > 2*l.Len()+1 || held > 0 && (blocks[0] == nil || blocks[held-1] == nil) {
			t.Fatalf("seed %d: %d blocks are held for %d items", seed, held, l.Len())
		}
	}
}

// tagOf has tags with the same bit, and groups without some.
func tagOf(number uint64) Tag { return Tag(1 + number%3*bitsOfItem*inGroup + number/inGroup%2) }

func compare(t *testing.T, l *Tagged[int], want []uint64, after uint64, tag Tag) {
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
	var l Tagged[int]
	const every = 5000
	for range 100 * every {
		if n := l.Add(1, 1); n%every > 0 {
			l.Remove(n)
		}
	}
	if blocks, groups := len(l.list.blocks), l.groups.Len(); l.Len() != 100 || blocks > 2*l.Len()+1 || groups > l.Len()+1 {
		t.Errorf("%d blocks and %d groups are held for %d items", blocks, groups, l.Len())
	}
	for number := range l.After(0, 0) {
		l.Remove(number)
	}
	if l.Len() != 0 || len(l.list.blocks) != 1 || l.list.vacant != 0 || l.groups.Len() != 1 {
		t.Errorf("an empty list has %d blocks, %d vacant, %d groups, %d items", len(l.list.blocks), l.list.vacant, l.groups.Len(), l.Len())
	}
}

// TestFewGroupsAreLookedThrough has many items be there: who looks for few of them passes by most.
func TestFewGroupsAreLookedThrough(t *testing.T) {
	var l Tagged[int]
	for i := range 100 * inGroup {
		l.Add(i, TagOf(fmt.Sprint("invocation-", i/20)))
	}
	tag, through := TagOf("another"), 0
	for _, g := range l.groups.After(0) {
		if g.mayHave(tag) {
			through++
		}
	}
	if through > l.groups.Len()/10 {
		t.Errorf("%d of %d groups are looked through for what is not there", through, l.groups.Len())
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
