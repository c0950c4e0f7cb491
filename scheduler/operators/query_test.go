package operators

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestFirst goes through names page by page, in whatever order they come.
func TestFirst(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, test := range []struct{ names, size int }{{0, 3}, {3, 3}, {4, 3}, {100, 1}, {1000, 7}, {5000, 0}} {
		var want, got []string
		for i := range test.names {
			want = append(want, fmt.Sprintf("%05d", i))
		}
		token := ""
		for {
			f := newFirst(token, int32(test.size))
			for _, i := range random.Perm(test.names) {
				f.add(want[i])
			}
			var names []string
			names, token = f.page()
			got = append(got, names...)
			if token == "" {
				break
			}
			if len(names) != cmp.Or(test.size, MaxPage) {
				t.Errorf("%d names on a page of %d", len(names), test.size)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: pages have %q", test, got)
		}
	}
}
