package alike

import (
	"maps"
	"math/rand/v2"
	"testing"
)

// TestMoves moves members at random, and compares the groups with a map of each member's name.
func TestMoves(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	names := []string{"", "a", "b", "c", "d"}
	var g Groups[int]
	of := map[int]string{}
	for range 10_000 {
		p, to := r.IntN(20), names[r.IntN(len(names))]
		g.Move(p, of[p], to)
		of[p] = to
		want := map[string]int{}
		for p, name := range of {
			if !g.Has(p, name) {
				t.Fatalf("%d is not in %q", p, name)
			}
			if name != "" {
				want[name]++
			}
		}
		if got := maps.Collect(g.Serving(func(int) bool { return true })); !maps.Equal(got, want) {
			t.Fatalf("groups %v, want %v", got, want)
		}
	}
	for name := range g.Serving(func(p int) bool { return false }) {
		t.Errorf("%q serves", name)
	}
}
