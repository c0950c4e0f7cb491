package runner

import "testing"

func TestListPids(t *testing.T) {
	many := make([]int, 4000)
	for i := range many {
		many[i] = i + 1
	}
	for want, pids := range map[string][]int{
		"[7]": {7}, "[1 2 3 4 5 6 7 8 9 10]": many[:10], "[1 2 3 4 5 6 7 8 9 10] and 3990 more": many,
	} {
		if got := listPids(pids); got != want {
			t.Errorf("%d processes are %q, want %q", len(pids), got, want)
		}
	}
}
