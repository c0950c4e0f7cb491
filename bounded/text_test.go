package bounded

import "testing"

func TestText(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", ""}, {"four", "four"}, {"fives", "five…"}, {"straße", "stra…"}, {"aaaß", "aaa…"},
	} {
		if got := Text(test.text, 4); got != test.want {
			t.Errorf("%q becomes %q, want %q", test.text, got, test.want)
		}
	}
}
