package printable

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// hidden are characters of all kinds that no name may have unseen: controls, those that turn the
// direction or take no room, fillers, tags, and those of private use.
const hidden = "\x00\x1b\x7f\u0085\u009b\u00ad\u034f\u061c\u115f\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\u2800\u3164\ufe0f\ufeff\uffa0\U000e0041\U000e0100\ue000"

func TestHidden(t *testing.T) {
	for _, r := range hidden {
		s := "//a" + string(r) + "b"
		for what, got := range map[string]string{
			"a name": Name(s), "lines": Lines(s), "a page": string(Page([]byte(s))), "a pattern": Glob(s),
			"a command": Command([]string{s}), "the beginning of a command": Brief(slices.Values([]string{s})),
		} {
			if strings.ContainsRune(got, r) || !strings.Contains(got, "//a") || !strings.HasSuffix(strings.TrimSuffix(got, "'"), "b") {
				t.Errorf("%U as %s is %q", r, what, got)
			}
		}
	}
	if got, want := Name("//a\u202eb\U000e0041\n"), "//a[U+202E]b[U+E0041][U+000A]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestSeen: what people see stays as it is.
func TestSeen(t *testing.T) {
	const seen = "plain größer 漢字 é 👍 \u00a0\u2009–… [U+202E]"
	if Name(seen) != seen || string(Page([]byte(seen))) != seen || string(JSON([]byte(seen))) != seen {
		t.Error("a text that is seen is changed")
	}
	if lines := seen + "\n\t" + seen; Lines(lines) != lines || string(Page([]byte(lines))) != lines {
		t.Error("lines are changed")
	}
	if got := Name("\xff"); !utf8.ValidString(got) {
		t.Errorf("%q", got)
	}
}

// TestJSON: escaped JSON has the same values.
func TestJSON(t *testing.T) {
	before, err := json.Marshal(hidden)
	if err != nil {
		t.Fatal(err)
	}
	var got string
	if err := json.Unmarshal(JSON(before), &got); err != nil || got != hidden {
		t.Errorf("%q becomes %q: %v", hidden, got, err)
	}
}

func TestBrief(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, ""},
		{[]string{"cc", "a b"}, "cc 'a b'"},
		{[]string{"sh", "-c", "x\ny"}, "sh -c 'x y'"},
		{[]string{strings.Repeat("x", 100)}, strings.Repeat("x", 100)},
		{[]string{strings.Repeat("x", 99), "yy"}, strings.Repeat("x", 99) + " …"},
		{[]string{strings.Repeat("ä", 1000)}, "'" + strings.Repeat("ä", 49) + "…"},
	} {
		if got := Brief(slices.Values(test.args)); got != test.want {
			t.Errorf("%q: %q, want %q", test.args, got, test.want)
		}
	}
}
