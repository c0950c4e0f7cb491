package least

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestList adds many values in random order, and compares the list with the beginning of the sorted
// values.
func TestList(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{0, 1, 7, 100, 1000} {
		all := random.Perm(500)
		l := Of(most, cmp.Compare[int])
		for i, v := range all {
			l.Add(v)
			if i%97 == 0 {
				l.Sorted() // as often as one likes
			}
			if len(l.values) > 4*most {
				t.Fatalf("of at most %d it holds %d", most, len(l.values))
			}
		}
		slices.Sort(all)
		if got := l.Sorted(); !slices.Equal(got, all[:min(most, len(all))]) {
			t.Errorf("at most %d: %v", most, got)
		}
	}
}
