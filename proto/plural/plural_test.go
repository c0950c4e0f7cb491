package plural

import "testing"

func TestOf(t *testing.T) {
	for _, test := range []struct {
		n    int
		noun string
		want string
	}{
		{0, "worker", "0 workers"},
		{1, "worker", "1 worker"},
		{2, "worker", "2 workers"},
		{1, "size class", "1 size class"},
		{3, "size class", "3 size classes"},
		{2, "entry", "2 entries"},
		{2, "day", "2 days"},
		{2, "key", "2 keys"},
		{2, "batch", "2 batches"},
		{2, "box", "2 boxes"},
		{-1, "second", "-1 seconds"},
	} {
		if got := Of(test.n, test.noun); got != test.want {
			t.Errorf("%d and %q make %q, want %q", test.n, test.noun, got, test.want)
		}
	}
}

func TestChoose(t *testing.T) {
	for n, want := range map[int64]string{0: "are", 1: "is", 2: "are", 21: "are"} {
		if got := Choose(n, "is", "are"); got != want {
			t.Errorf("%d %s, want %s", n, got, want)
		}
	}
}
