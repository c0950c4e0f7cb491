package serve

import "testing"

func TestGCPercent(t *testing.T) {
	const gigabytes = 16 << 30
	for needed, want := range map[uint64]int{
		0: 2000, spareGarbage / 2: 200, spareGarbage: 100, 2 * spareGarbage: 50, 100 * spareGarbage: garbagePercent,
	} {
		if got := gcPercent(needed, gigabytes); got != want {
			t.Errorf("a process that needs %d bytes: %d %%, want %d", needed, got, want)
		}
	}
	if got := gcPercent(20<<20, 80<<20); got != 50 {
		t.Errorf("a process that needs 20 MiB of 80: %d %%, want 50", got)
	}
	if got := gcPercent(0, 0); got != garbagePercent {
		t.Errorf("a process that knows of no memory: %d %%", got)
	}
}
