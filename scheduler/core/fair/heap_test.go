package fair

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHeapInOrder has heaps of all sizes yield what they hold by its order.
func TestHeapInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for size := range 60 {
		h := heap{byRank: true}
		var want []int32
		for range size {
			best := int32(random.IntN(20))
			h.push((&backlog{best: best}).entryByBest())
			want = append(want, best)
		}
		slices.Sort(want)
		var got []int32
		for x := range h.inOrder() {
			got = append(got, x.best)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d, want %d", got, want)
		}
	}
}
