package fetch

import (
	"math/rand/v2"
	"testing"
)

// TestStoreSpans compares spans with one flag per byte.
func TestStoreSpans(t *testing.T) {
	const size = 64
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		var have spans
		var model [size]bool
		for range 12 {
			p := span{from: random.Int64N(size)}
			p.to = p.from + 1 + random.Int64N(min(10, size-p.from))
			have.add(p)
			for i := p.from; i < p.to; i++ {
				model[i] = true
			}
			for at := range int64(size) {
				end, gap := at, span{at, at}
				for end < size && model[end] {
					end++
				}
				if got := have.end(at); got != end {
					t.Fatalf("seed %d: %v: end of %d is %d, want %d", seed, have, at, got, end)
				}
				if model[at] {
					continue
				}
				for gap.from > 0 && !model[gap.from-1] {
					gap.from--
				}
				for gap.to < size && !model[gap.to] {
					gap.to++
				}
				if got := have.gap(at, size); got != gap {
					t.Fatalf("seed %d: %v: gap at %d is %v, want %v", seed, have, at, got, gap)
				}
			}
			for i := 1; i < len(have); i++ {
				if have[i].from <= have[i-1].to {
					t.Fatalf("seed %d: %v overlap or touch", seed, have)
				}
			}
		}
	}
}
