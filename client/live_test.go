package client

import (
	"strings"
	"testing"
)

func TestRestOfWhatWasShown(t *testing.T) {
	for _, c := range []struct {
		shown []string
		final string
		rest  string
		whole bool
	}{
		{nil, "", "", false},
		{nil, "all", "all", false},
		{[]string{"fi", "rst\n"}, "first\nsecond\n", "second\n", false},
		{[]string{"first\n"}, "first\n", "", false},
		{[]string{"first run\n"}, "second run\n", "second run\n", true},
		{[]string{"first\n", "and more\n"}, "first\n", "first\n", true},
		{[]string{"first\n"}, "", "", true},
	} {
		var w strings.Builder
		l := NewLive(&w)
		for _, s := range c.shown {
			l.show([]byte(s))
		}
		rest, whole := l.Rest([]byte(c.final))
		if w.String() != strings.Join(c.shown, "") || string(rest) != c.rest || whole != c.whole {
			t.Errorf("%q of %q: wrote %q, rest %q, whole %t", c.shown, c.final, w.String(), rest, whole)
		}
	}
}
