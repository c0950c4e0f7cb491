package fair

import "testing"

// TestDue sees that weight and priority both count while something waits, and the weight alone
// after that.
func TestDue(t *testing.T) {
	f := newFarm(Options{Levels: []Level{{Weights: map[string]float64{"a": 3}}}}, 0)
	f.add("a", 100, 1)
	f.add("b", -100, 1)
	expect := func(want map[string]float64) {
		t.Helper()
		for v := range f.tree.Branches(0) {
			if v.Due != want[v.Key] {
				t.Errorf("%q is due %v, want %v", v.Key, v.Due, want[v.Key])
			}
		}
	}
	expect(map[string]float64{"": 0, "a": 1.5, "b": 2})
	f.work(&Worker{}, 1)
	f.work(&Worker{}, 1)
	expect(map[string]float64{"": 0, "a": 3, "b": 1})
}
