package view

import "testing"

// TestBehind sees whose actions are said to run.
func TestBehind(t *testing.T) {
	of := func(key string, running int, below ...Branch) Branch {
		return Branch{Key: key, Running: running, Children: below}
	}
	for _, test := range []struct {
		name string
		root Branch
		want string
	}{
		{"nothing runs", of("", 0, of("a", 0)), ""},
		{"nobody has most", of("", 4, of("a", 2), of("b", 2)), ""},
		{
			"one of many builds", of("", 9, of("a", 6, of("x", 3), of("y", 3)), of("b", 3)),
			"; 66 % of the running actions belong to a",
		},
		{"no instance name", of("", 4, of("", 4, of("x", 3), of("y", 1))), "; 75 % of the running actions belong to x"},
	} {
		if got := test.root.Behind(); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
