package span

import (
	"math/rand/v2"
	"testing"
)

// TestSet compares a Set with one flag per byte.
func TestSet(t *testing.T) {
	const size = 64
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		var have Set
		var model [size]bool
		for range 12 {
			p := Span{From: random.Int64N(size)}
			p.To = p.From + 1 + random.Int64N(min(10, size-p.From))
			have.Add(p)
			for i := p.From; i < p.To; i++ {
				model[i] = true
			}
			for at := range int64(size) {
				end, gap := at, Span{at, at}
				for end < size && model[end] {
					end++
				}
				if got := have.End(at); got != end {
					t.Fatalf("seed %d: %v: end of %d is %d, want %d", seed, have, at, got, end)
				}
				if model[at] {
					continue
				}
				for gap.From > 0 && !model[gap.From-1] {
					gap.From--
				}
				for gap.To < size && !model[gap.To] {
					gap.To++
				}
				if got := have.Gap(at, size); got != gap {
					t.Fatalf("seed %d: %v: gap at %d is %v, want %v", seed, have, at, got, gap)
				}
			}
			var count int64
			for _, in := range model {
				if in {
					count++
				}
			}
			if got := have.Bytes(); got != count {
				t.Fatalf("seed %d: %v: %d bytes, want %d", seed, have, got, count)
			}
			q := Span{From: random.Int64N(size)}
			q.To = q.From + 1 + random.Int64N(min(10, size-q.From))
			all := true
			for i := q.From; i < q.To; i++ {
				all = all && model[i]
			}
			if got := have.Has(q); got != all {
				t.Fatalf("seed %d: %v: has %v: %t, want %t", seed, have, q, got, all)
			}
			for i := 1; i < len(have); i++ {
				if have[i].From <= have[i-1].To {
					t.Fatalf("seed %d: %v overlap or touch", seed, have)
				}
			}
		}
	}
}
