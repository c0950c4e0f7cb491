package prefetch

import "testing"

// TestMiddle compares with the ranks of the sign test, from tables of the binomial distribution.
func TestMiddle(t *testing.T) {
	for n, want := range map[int]string{1: "1.00–1.00", 2: "1.00–2.00", 6: "1.00–6.00", 9: "2.00–8.00", 15: "4.00–12.0"} {
		var values []float64
		for i := range n {
			values = append(values, float64(n-i))
		}
		if got := middle(values); got != want {
			t.Errorf("of %d: %s, want %s", n, got, want)
		}
	}
}

func TestCostShares(t *testing.T) {
	c := pairCost{
		plain: buildCost{wall: 10, command: 18, serving: 2},
		with:  buildCost{wall: 11, command: 18.5, serving: 3.5},
	}
	for name, got := range map[string]float64{"cpu": cpuShare(c) - 0.1, "wall": wallShare(c) - 0.1, "serving": servingShare(c) - 0.075} {
		if got > 1e-9 || got < -1e-9 {
			t.Errorf("%s is off by %g", name, got)
		}
	}
}
