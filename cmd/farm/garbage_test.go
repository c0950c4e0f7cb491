package farm

import "testing"

func TestGCPercent(t *testing.T) {
	for needed, want := range map[uint64]int{
		0: 2000, spareGarbage / 2: 200, spareGarbage: 100, 2 * spareGarbage: 50, 100 * spareGarbage: garbagePercent,
	} {
		if got := gcPercent(needed); got != want {
			t.Errorf("a process that needs %d bytes: %d %%, want %d", needed, got, want)
		}
	}
}
