package bounded

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCache(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(c *Cache[string, int])
		want string // remaining entries, and their weight
	}{
		{"empty", func(*Cache[string, int]) {}, " 0"},
		{"within the bound", func(c *Cache[string, int]) { c.Put("a", 1, 4); c.Put("b", 2, 6) }, "1 2 10"},
		{"the oldest goes", func(c *Cache[string, int]) { c.Put("a", 1, 4); c.Put("b", 2, 6); c.Put("c", 3, 1) }, "2 3 7"},
		{"what was used stays", func(c *Cache[string, int]) {
			c.Put("a", 1, 4)
			c.Put("b", 2, 6)
			c.Get("a")
			c.Put("c", 3, 1)
		}, "1 3 5"},
		{"a peek is no use", func(c *Cache[string, int]) {
			c.Put("a", 1, 4)
			c.Put("b", 2, 6)
			c.Peek("a")
			c.Put("c", 3, 1)
		}, "2 3 7"},
		{"again", func(c *Cache[string, int]) { c.Put("a", 1, 4); c.Put("a", 2, 5) }, "2 5"},
		{"heavier", func(c *Cache[string, int]) { c.Put("a", 1, 4); c.Put("b", 2, 6); c.Reweigh("b", 7) }, "2 7"},
		{"lighter", func(c *Cache[string, int]) { c.Put("a", 1, 4); c.Put("b", 2, 6); c.Reweigh("b", 1) }, "1 2 5"},
		{"what is not there weighs nothing", func(c *Cache[string, int]) { c.Put("a", 1, 4); c.Reweigh("b", 9) }, "1 4"},
		{"removed", func(c *Cache[string, int]) {
			c.Put("a", 1, 4)
			c.Put("b", 2, 6)
			if v, ok := c.Remove("a"); v != 1 || !ok {
				t.Errorf("removed %d, %t", v, ok)
			}
		}, "2 6"},
		{"nothing to remove", func(c *Cache[string, int]) {
			c.Put("a", 1, 4)
			if v, ok := c.Remove("b"); ok {
				t.Errorf("removed %d", v)
			}
		}, "1 4"},
		{"too heavy alone", func(c *Cache[string, int]) { c.Put("a", 1, 4); c.Put("b", 2, 11) }, "2 11"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := New[string, int](10)
			test.do(c)
			var left []string
			for _, v := range slices.Sorted(c.Values()) {
				left = append(left, fmt.Sprint(v))
			}
			if got := fmt.Sprintf("%s %d", strings.Join(left, " "), c.Weight()); got != test.want {
				t.Errorf("left %q, want %q", got, test.want)
			}
		})
	}
}
