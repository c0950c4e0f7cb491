package fifo

import (
	"math/rand/v2"
	"testing"
)

// TestRing compares a Ring with a slice, while values come and go.
func TestRing(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var r Ring[int]
	var want []int
	for i := range 10_000 {
		if random.IntN(200) < len(want) {
			if got := r.PopFront(); got != want[0] {
				t.Fatalf("%d is first, want %d", got, want[0])
			}
			want = want[1:]
		} else {
			r.PushBack(i)
			want = append(want, i)
		}
		if r.Len() != len(want) {
			t.Fatalf("%d values, want %d", r.Len(), len(want))
		}
		if len(want) > 0 {
			if at := random.IntN(len(want)); *r.At(at) != want[at] {
				t.Fatalf("%d has %d before it, want %d", *r.At(at), at, want[at])
			}
		}
	}
	for r.Len() > 0 {
		r.PopFront()
	}
	for _, v := range r.values {
		if v != 0 {
			t.Fatal("values that are gone are held")
		}
	}
}
