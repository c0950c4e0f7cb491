package core

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSharers compares the list with a slice.
func TestSharers(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var l sharers
	var want []*operation
	for range 1000 {
		if i := random.IntN(6); i < len(want) {
			l.remove(want[i])
			want = slices.Delete(want, i, i+1)
		} else {
			o := &operation{}
			l.add(o)
			want = append(want, o)
		}
		if got := slices.Collect(l.all()); !slices.Equal(got, want) || l.empty() != (len(want) == 0) {
			t.Fatalf("%v, want %v", got, want)
		}
	}
	for o := range l.all() {
		l.remove(o)
	}
	if !l.empty() {
		t.Error("not all are removed while they are yielded")
	}
}
