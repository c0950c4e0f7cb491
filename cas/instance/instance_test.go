package instance

import (
	"errors"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "main": "", "a/b c/..d": "", "zstd/blobsy": "", "…": "", strings.Repeat("x", MaxBytes): "",
		"/":                             "empty segment",
		"/a":                            "empty segment",
		"a/":                            "empty segment",
		"a//b":                          `invalid instance name "a//b": it has an empty segment`,
		".":                             `the segment "."`,
		"a/../b":                        `the segment "..", which some would resolve`,
		"a/blobs":                       `the reserved segment "blobs"`,
		"compressed-blobs/zstd":         "reserved",
		"a\x00b":                        "it has a NUL",
		strings.Repeat("x", MaxBytes+1): "it has 1025 bytes, at most 1024 are taken",
	} {
		switch err := Check(name); {
		case want == "" && err != nil:
			t.Errorf("%.100q: %v", name, err)
		case want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), want)):
			t.Errorf("%.100q: %v, want %q", name, err, want)
		}
	}
}

func TestBelow(t *testing.T) {
	for _, pair := range [][2]string{{"", ""}, {"a", ""}, {"a", "a"}, {"a/b", "a"}, {"a/b/c", "a/b"}} {
		if !Below(pair[0], pair[1]) {
			t.Errorf("%q is not below %q", pair[0], pair[1])
		}
	}
	for _, pair := range [][2]string{{"", "a"}, {"ab", "a"}, {"b", "a"}, {"a", "a/b"}, {"b/a", "a"}} {
		if Below(pair[0], pair[1]) {
			t.Errorf("%q is below %q", pair[0], pair[1])
		}
	}
}

func TestJoin(t *testing.T) {
	for _, j := range [][3]string{{"", "", ""}, {"a", "", "a"}, {"", "b", "b"}, {"a", "b/c", "a/b/c"}, {"a", "../b", "a/../b"}} {
		if got := Join(j[0], j[1]); got != j[2] {
			t.Errorf("%q below %q is %q, want %q", j[1], j[0], got, j[2])
		}
	}
}
