package printable

import (
	"strings"
	"testing"
)

func TestColumns(t *testing.T) {
	for _, c := range []struct {
		s           string
		columns     int
		first, last string // in 5 columns
	}{
		{"", 0, "", ""},
		{"12345", 5, "12345", "12345"},
		{"123456", 6, "1234…", "…3456"},
		{"größer", 6, "größ…", "…ößer"},
		{"建設建設", 8, "建設…", "…建設"},
		{"a建b設c", 7, "a建b…", "…b設c"},
		{"🙂🙂🙂", 6, "🙂🙂…", "…🙂🙂"},
	} {
		if n := Columns(c.s); n != c.columns {
			t.Errorf("%q takes %d columns, want %d", c.s, n, c.columns)
		}
		if first, last := First(c.s, 5), Last(c.s, 5); first != c.first || last != c.last {
			t.Errorf("%q in 5 columns: %q and %q, want %q and %q", c.s, first, last, c.first, c.last)
		}
		for n := range 8 {
			if padded := Padded(First(c.s, max(n, 1)), n); Columns(padded) != max(n, min(1, c.columns)) {
				t.Errorf("%q in %d columns: %q", c.s, n, padded)
			}
		}
	}
	if s := First(strings.Repeat("設", 1000), 2); s != "…" {
		t.Errorf("a wide character and an ellipsis in 2 columns: %q", s)
	}
}
