package fair

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestRanking compares a ranking with a sorted list, for items in order and out of order, while it
// grows, shrinks and becomes empty.
func TestRanking(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var r ranking
	var model []sortKey
	for i := range uint64(6000) {
		if growing := i%3000 < 1500; random.IntN(4) > 0 == growing || len(model) == 0 {
			p := sortKey{priority: random.Int32N(2), expected: time.Duration(random.IntN(2)), age: i, entry: &Entry{}}
			if i < 3000 {
				p.priority, p.expected = 0, 0
			}
			at, _ := slices.BinarySearchFunc(model, p, func(a, b sortKey) int {
				if a.before(b) {
					return -1
				}
				return 1
			})
			model = slices.Insert(model, at, p)
			r.insert(p)
		} else {
			at := 0
			if random.IntN(2) == 0 {
				at = random.IntN(len(model))
			}
			r.remove(model[at])
			model = slices.Delete(model, at, at+1)
		}
		if i%8 > 0 {
			continue
		}
		if problem := r.check(); problem != "" || !slices.Equal(slices.Collect(r.all()), model) {
			t.Fatalf("after %d steps: %s, or it is not the list", i, problem)
		}
		if len(model) > 0 && *r.first() != model[0] {
			t.Fatalf("after %d steps the first is %+v", i, r.first())
		}
	}
}
