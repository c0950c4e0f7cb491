package fair

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestHeapInOrder has heaps of all sizes yield what they hold by its order.
func TestHeapInOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for size := range 60 {
		var h heap[byBest]
		var want []int32
		for range size {
			best := int32(random.IntN(20))
			h.push(byBest{best, &backlog{}})
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

// TestNextAmong looks for what is next of those that may, in the order of turns.
func TestNextAmong(t *testing.T) {
	tree := New(Options{Levels: []Level{{}}})
	items := make([]Item, 2*lookAmong)
	for i := range items {
		e := &Entry{}
		items[i].Owner = i
		tree.Attach(e, &items[i], []string{fmt.Sprint("branch", i)}, Rank{Age: uint64(i)})
		tree.Enqueue(&items[i], 1, false)
	}
	now := time.Unix(0, 0)
	for _, want := range []int{0, 7, lookAmong - 1} {
		it := tree.NextAmong(1, now, func(key string) bool { return key == fmt.Sprint("branch", want) })
		if it == nil || it.Owner != want {
			t.Errorf("found %+v, want %d", it, want)
		}
	}
	if it := tree.NextAmong(1, now, func(key string) bool { return key == fmt.Sprint("branch", lookAmong) }); it != nil {
		t.Errorf("found %v beyond what is looked at", it.Owner)
	}
	if it := tree.NextAmong(2, now, func(string) bool { return true }); it != nil {
		t.Errorf("found %v in another kind", it.Owner)
	}
}
