package serve

import "testing"

func TestWaiting(t *testing.T) {
	for _, test := range []struct {
		asked  int
		memory int64
		want   uint32
	}{
		{0, 1 << 20, 32}, {0, 500 << 20, 500}, {0, 64 << 30, streamWorkers}, {FewWaiting, 64 << 30, FewWaiting}, {4000, 1 << 20, 4000},
	} {
		if got := (&Callers{Waiting: test.asked}).waiting(test.memory); got != test.want {
			t.Errorf("%d asked for, with %d bytes of memory: %d, want %d", test.asked, test.memory, got, test.want)
		}
	}
}
