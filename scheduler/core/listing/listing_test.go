package listing

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestList compares a List, and what is read of it from any number on, with a slice.
func TestList(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		var l List[int]
		l.next -= 1000 // places begin again meanwhile
		var want []uint64
		places := map[uint64]Place{}
		number := uint64(0)
		for step := range 5000 {
			if stays := int(seed) * 50; random.IntN(2*stays+len(want)+1) < stays {
				number += 1 + random.Uint64N(3)
				places[number] = l.Add(number, int(number)*2)
				want = append(want, number)
			} else if len(want) > 0 {
				at := random.IntN(1 + random.IntN(len(want))) // rather an early one
				l.Remove(places[want[at]])
				want = slices.Delete(want, at, at+1)
			}
			if step%50 == 0 {
				compare(t, &l, want, random.Uint64N(number+3))
			}
		}
		if held := len(l.blocks); held > 2*l.Len() || held > 0 && (l.blocks[0] == nil || l.blocks[held-1] == nil) {
			t.Fatalf("seed %d: %d blocks are held for %d items", seed, held, l.Len())
		}
	}
}

func compare(t *testing.T, l *List[int], want []uint64, after uint64) {
	t.Helper()
	at, found := slices.BinarySearch(want, after)
	if found {
		at++
	}
	var got []uint64
	for number, item := range l.After(after) {
		if item != int(number)*2 {
			t.Fatalf("item %d has number %d", item, number)
		}
		got = append(got, number)
	}
	if !slices.Equal(got, want[at:]) || l.Len() != len(want) {
		t.Fatalf("after %d: %v, want %v; %d of %d", after, got, want[at:], l.Len(), len(want))
	}
	for number := range l.After(after) {
		if number != want[at] {
			t.Fatalf("%d is the first after %d, want %d", number, after, want[at])
		}
		break
	}
}
