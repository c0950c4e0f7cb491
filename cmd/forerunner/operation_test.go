package main

import (
	"strings"
	"testing"

	historypb "github.com/forerunner-build/forerunner/proto/history"
)

// TestPrintStreams begins with the result and standard error, of which nothing reaches the terminal
// as it is.
func TestPrintStreams(t *testing.T) {
	raw := func(s string) *historypb.Stream { return &historypb.Stream{Raw: []byte(s)} }
	for _, c := range []struct {
		stderr, stdout *historypb.Stream
		want           string
	}{
		{nil, raw(""), "result: exit code 1\n\n"},
		{raw("\x1b[31mno \x1b[0;1msuch file\x1b]0;title\n"), raw("a\nb"), "result: exit code 1\n\nstandard error:\nno such file\uFFFD]0;title\n\nstandard output:\na\nb\n\n"},
		{&historypb.Stream{Digest: "ab/9000"}, nil, "result: exit code 1\n\nstandard error is in the storage: ab/9000\n\n"},
	} {
		var out strings.Builder
		if err := printStreams(&out, "exit code 1", c.stderr, c.stdout); err != nil || out.String() != c.want {
			t.Errorf("%q, %v, want %q", &out, err, c.want)
		}
	}
}
