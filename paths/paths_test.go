package paths

import "testing"

func TestBelow(t *testing.T) {
	for _, test := range []struct {
		path, dir string
		want      bool
	}{
		{"/a/b", "/a", true},
		{"/a", "/a", true},
		{"/ab", "/a", false},
		{"/a", "/a/b", false},
		{"/a", "/", true},
		{"/", "/", true},
		{"/", "/a", false},
		{"a/b", "a", true},
		{"a/b", "", true},
		{"", "", true},
		{"ab", "a", false},
	} {
		if got := Below(test.path, test.dir); got != test.want {
			t.Errorf("%q is below %q: %t", test.path, test.dir, got)
		}
	}
}
